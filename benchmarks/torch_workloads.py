"""The workloads that bring torch along: a subclass of torch's Dataset, and a collate function that makes tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from benchmarks.workloads import Floats


class TorchFloats(Dataset[Any]):
    """`Floats` as most people would write it: a subclass of torch's Dataset."""

    def __init__(self, count: int) -> None:
        self.floats = Floats(count)

    def __len__(self) -> int:
        return len(self.floats)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.floats[index]


def collate_scenes_to_tensors(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Images stacked to one tensor, boxes as a list of tensors, captions as a list: as detection code does it."""
    return {
        "image": torch.from_numpy(np.stack([sample["image"] for sample in samples])),
        "boxes": [torch.from_numpy(sample["boxes"]) for sample in samples],
        "text": [sample["text"] for sample in samples],
    }


def as_tensors(samples: list[Any]) -> list[Any]:
    """A batch of samples of several sizes: what our loader gives out with ``ragged="list"``."""
    return [torch.from_numpy(sample) for sample in samples]
