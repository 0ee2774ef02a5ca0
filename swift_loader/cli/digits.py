"""The demo's data: scikit-learn's 1,797 handwritten digits, 8 x 8 pixels, cut into training and test set.

Knows nothing of torch: this is all that the demo's workers import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TEST_SHARE = 5  # every fifth digit is held out
_MARGIN = 1


class Table(NamedTuple):
    """Images with values from 0 to 1, and which digit each shows."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def load() -> tuple[Table, Table]:
    """The training set and the held-out test set; the same cut every time."""
    from sklearn.datasets import load_digits  # a second of importing that workers need not pay

    digits: Any = load_digits()
    images = (digits.images / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[np.random.default_rng(0).permutation(len(labels))[::_TEST_SHARE]] = True
    return Table(images[~held_out], labels[~held_out]), Table(images[held_out], labels[held_out])


class Digits:
    """A map-style dataset of one table.

    Args:
        images: As in `Table`.
        labels: As in `Table`.
        augment: Whether each image is shifted by up to a pixel, differently every time it is asked for. The loader
            seeds numpy's generator, so the shifts are the same in every run with the same seed.
    """

    def __init__(self, images: NDArray[np.float32], labels: NDArray[np.int64], *, augment: bool) -> None:
        self._size = images.shape[1]
        self._images = np.pad(images, ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN)))
        self._labels = labels
        self._augment = augment

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], np.int64]:
        top, left = np.random.randint(2 * _MARGIN + 1, size=2) if self._augment else (_MARGIN, _MARGIN)  # noqa: NPY002
        window = self._images[index, top : top + self._size, left : left + self._size]
        return window[np.newaxis], self._labels[index]
