"""The datasets that are loaded, as plain classes with `__len__` and `__getitem__` and numpy samples.

Workers import this file, so it must not import torch, and nothing else that is heavy.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMAGE_SHAPE = (3, 224, 224)
#: First values stay below this, so that sums over float32 batches are exact.
FIRST_VALUES = 251


class MemoryImages:
    """Images that are in memory already: `count` samples that are views of `distinct` arrays.

    The first element of each sample is a known small number, from which a consumer's checksum is made.
    """

    def __init__(self, count: int, distinct: int = 256, dtype: str = "uint8") -> None:
        self.count = count
        texture = np.random.default_rng(0).integers(0, FIRST_VALUES, IMAGE_SHAPE, dtype=np.uint8)
        self.pool: NDArray[Any] = np.empty((distinct, *IMAGE_SHAPE), dtype=dtype)
        for place in range(distinct):
            self.pool[place] = texture
            self.pool[place, 0, 0, 0] = place % FIRST_VALUES

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self.pool[index % len(self.pool)]  # type: ignore[no-any-return]


class Floats:
    """128 floats and a label: samples so small that only the overhead of a batch is left."""

    def __init__(self, count: int, width: int = 128) -> None:
        self.features = np.random.default_rng(0).random((count, width), dtype=np.float32)
        self.labels = [index % 1000 for index in range(count)]

    @property
    def nbytes(self) -> int:
        """What the data takes in memory (the labels: a list of pointers to 1,000 ints that all share)."""
        return self.features.nbytes + 8 * len(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        return self.features[index], self.labels[index]


class Waiting:
    """Samples that come from somewhere slow: each waits, and costs no CPU."""

    def __init__(self, count: int, wait_s: float = 0.005) -> None:
        self.count = count
        self.wait_s = wait_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        time.sleep(self.wait_s)
        return index


class Stragglers:
    """Samples of which one in twenty takes a hundred times as long. Which ones is a function of the index alone."""

    def __init__(self, count: int, slow_s: float = 0.1, quick_s: float = 0.001) -> None:
        self.count = count
        self.slow_s = slow_s
        self.quick_s = quick_s

    @staticmethod
    def is_slow(index: int) -> bool:
        """Chosen by a hash: 5 % on the whole, but in clumps here and there, as in life."""
        return zlib.crc32(b"%d slow?" % index) % 20 == 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        time.sleep(self.slow_s if self.is_slow(index) else self.quick_s)
        return index


class Scenes:
    """A nested sample of varying size: an image, boxes (0 to 19 of them), a caption."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(0)
        self.count = count
        self.images = rng.integers(0, 256, (256, 3, 64, 64), dtype=np.uint8)
        self.boxes = rng.random((20, 4), dtype=np.float32)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "image": self.images[index % 256],
            "boxes": self.boxes[: index % 20],
            "text": f"a picture with the number {index}",
        }


def collate_scenes(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Images stacked, boxes and captions as lists: what detection code does, in numpy."""
    return {
        "image": np.stack([sample["image"] for sample in samples]),
        "boxes": [sample["boxes"] for sample in samples],
        "text": [sample["text"] for sample in samples],
    }
