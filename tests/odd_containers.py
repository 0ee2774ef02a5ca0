"""Samples in containers of other types than dict and list; and a dataset that makes its batches itself."""

from __future__ import annotations

from collections import Counter, UserDict, defaultdict, deque
from typing import Any, NamedTuple

import numpy as np


class Tokens(UserDict):  # type: ignore[type-arg]
    """As a tokenizer gives them: with something of its own beside the items."""

    def __init__(self, data: dict[str, Any], encodings: Any) -> None:
        super().__init__(data)
        self.encodings = encodings


class Odd:
    """The keys come in another order from sample to sample, and numbers in another dtype."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        value = [index, index + 0.5, np.float32(index), index % 2 == 0][index % 4]
        parts = {
            "tokens": Tokens({"ids": np.arange(3) + index}, encodings=f"of {index}"),
            "counts": Counter(a=index, b=1),
            "groups": defaultdict(list, x=value),
            "line": deque([index, f"text {index}"], maxlen=2),
        }
        return dict(sorted(parts.items(), reverse=index % 3 == 0))


class MadeBatch(NamedTuple):
    x: Any
    y: Any


class MakesBatches:
    """Asked for all samples of a batch, it gives the batch."""

    def __init__(self, kind: str = "dict") -> None:
        self.x, self.kind = np.arange(32.0), kind

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        return self.x[index], index

    def __getitems__(self, indices: list[int]) -> Any:
        x, y = self.x[indices], np.array(indices)
        return {"dict": {"x": x, "y": y}, "namedtuple": MadeBatch(x, y), "tuple": (x, y), "array": x}[self.kind]


def as_it_is(batch: Any) -> Any:
    """A collate for batches that are made already."""
    return batch
