"""Room in the slot behind the rows: what is read there lies where it is sent from, and is not copied again."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from swift_loader.batch.layout import aligned


class Spare:
    """Gives out the bytes of ``memory`` (an array of bytes) from ``start`` to its end. For one thread.

    Example:
        >>> spare = Spare(np.zeros(256, np.uint8), start=64)
        >>> image = spare.empty((3, 4), "uint8")
        >>> spare.place_of(image), spare.place_of(np.zeros(3)), spare.end
        (64, None, 128)
    """

    __slots__ = ("_address", "_memory", "_start", "end")

    def __init__(self, memory: Any, start: int) -> None:
        self._memory = memory
        self._start = self.end = start
        self._address = _address_of(memory)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """As `numpy.empty`, here if there is room."""
        kind = np.dtype(dtype)
        start, end = self.end, aligned(self.end + prod(shape) * kind.itemsize)
        if end > len(self._memory):
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
