"""Datasets whose samples change in shape, dtype or structure."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from tests.datasets import Numbers

#: Leaves that some batches are of, and others that now and then stand among them.
_LEAVES = (
    lambda i: i,
    lambda i: i + 0.5,
    lambda i: i % 2 == 0,
    np.int64,
    np.float32,
    lambda i: np.full((), i, np.int64),
    lambda i: np.full((3,), i, np.int64),
    lambda i: np.full((3,), i, np.int32),
    lambda i: np.full((3,), i, ">i4"),
    lambda i: np.full((0,), i, np.int32),
    lambda i: np.full((2, 2), i, np.float32),
    lambda i: np.full((2, 0, 2), i, np.float32),
    lambda i: torch.full((3,), i, dtype=torch.int64),
    lambda i: torch.full((2, 2), i, dtype=torch.bfloat16),
    lambda i: f"text {i}",
    lambda i: None,
    lambda i: [i],
)


class Changing(Numbers):
    """Sample i is drawn from a seed: mostly as its neighbours are, now and then something else."""

    def __init__(self, count: int, seed: int, *, odd: float) -> None:
        super().__init__(count)
        self.seed, self.odd = seed, odd

    def __getitem__(self, index: int) -> Any:
        run, own = random.Random(f"{self.seed} {index // 16}"), random.Random(f"{self.seed} {index} own")
        usual = run.randrange(len(_LEAVES)), run.randrange(len(_LEAVES))
        picked = [own.randrange(len(_LEAVES)) if own.random() < self.odd else one for one in usual]
        return {"a": _LEAVES[picked[0]](index), "b": (_LEAVES[picked[1]](index),)}


class Quick(Numbers):
    """Samples so quick that they are written by the loop that fetches them; a few are of another make."""

    def __getitem__(self, index: int) -> Any:
        if index % 97 == 50:
            return np.full(3, index, np.float32), index
        if index % 89 == 40:
            return np.full(4, index, np.int32), float(index)
        return self.rows[index % 8], index

    rows = tuple(np.full(4, row, np.int32) for row in range(8))
