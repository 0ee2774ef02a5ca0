"""Room in the slot behind the rows: what is read there lies where it is sent from, and is not copied again."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

import numpy as np

from swift_loader.batch.codec import INLINE_NBYTES
from swift_loader.batch.layout import aligned


class Spare:
    """Gives out the bytes of ``memory`` (an array of bytes) from ``start`` to its end. For one thread.

    Args:
        memory: All of the slot.
        start: Where its rows end.
        lists: Which of a sample's leaves are sent in lists. All others go to their rows.

    Example:
        >>> spare = Spare(np.zeros(1 << 20, np.uint8), start=64, lists=[0])
        >>> image = spare.empty(0, (300, 300), "uint8")
        >>> spare.place_of(image), spare.place_of(np.zeros(3)), spare.end
        (64, None, 90112)
    """

    __slots__ = ("_address", "_lists", "_memory", "_start", "end")

    def __init__(self, memory: Any, start: int, lists: Collection[int]) -> None:
        self._memory = memory
        self._lists = lists
        self._start = self.end = start
        self._address = _address_of(memory)

    def empty(self, leaf: int, shape: tuple[int, ...], dtype: str) -> Any:
        """As `numpy.empty`, for that leaf of a sample; here if it is sent from here and there is room."""
        kind = np.dtype(dtype)
        nbytes = prod(shape) * kind.itemsize
        start, end = self.end, aligned(self.end + nbytes)
        if leaf not in self._lists or nbytes <= INLINE_NBYTES or end > len(self._memory):
            return np.empty(shape, kind)
        self.end = end
        return np.ndarray(shape, kind, self._memory, start)

    def place_of(self, array: Any) -> int | None:
        """Where its first byte lies in the memory; None if it lies elsewhere."""
        place = _address_of(array) - self._address
        return place if self._start <= place < self.end else None


def _address_of(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
