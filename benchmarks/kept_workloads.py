"""Samples that lie on a disk: what a cache reads back, and the same as files of numpy's. Workers import this file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.workloads import FIRST_VALUES, IMAGE_SHAPE

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Images:
    """Images that are made when they are asked for: `ragged` ones have from 64 to 223 rows."""

    def __init__(self, count: int, *, ragged: bool = False) -> None:
        self.count = count
        self.ragged = ragged
        self.texture = np.random.default_rng(0).integers(0, FIRST_VALUES, IMAGE_SHAPE, dtype=np.uint8)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        rows = 64 + index * 37 % 160 if self.ragged else IMAGE_SHAPE[1]
        image = self.texture[:, :rows].copy()
        image[0, 0, 0] = index % FIRST_VALUES
        return image


class Files:
    """The same samples, each in a file of its own, read by `np.load`."""

    def __init__(self, folder: str, count: int) -> None:
        self.folder = folder
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> NDArray[Any]:
        return np.load(f"{self.folder}/{index}.npy")  # type: ignore[no-any-return]


def save(images: Images, folder: Path) -> None:
    """Writes them as files."""
    for index in range(len(images)):
        np.save(folder / f"{index}.npy", images[index])


def as_list(samples: list[Any]) -> list[Any]:
    """What a batch of samples of several sizes is."""
    return samples
