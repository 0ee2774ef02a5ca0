"""The memory that what was fetched lies in: one sealed file, which others map, given out and taken back here alone."""

from __future__ import annotations

import bisect
import fcntl
import mmap
import os
from typing import Any

import numpy as np

from swift_loader.host.memfile import memory_file
from swift_loader.stores import page

#: Stretches begin at multiples of it.
ALIGNMENT = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
#: Others may map it from now on, and not write. Kernels before 5.1 do not know it.
_FUTURE_WRITE = 0x10


class Room:
    """Stretches of the memory, the first that is large enough; and the page that tells of them."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.arena_fd, self._data = _shared("swift-fetched", nbytes)
        self.page_fd, told = _shared("swift-fetched-page", page.NBYTES)
        self.page = page.Page(told)
        self._taken: list[tuple[int, int]] = []
        """Begin and end of each, in order."""
        self.used_nbytes = 0

    def take(self, nbytes: int) -> int | None:
        """Where so many bytes may be written; None if there is no such place."""
        size, at = _rounded(nbytes), 0
        for begin, end in self._taken:
            if begin - at >= size:
                break
            at = end
        if at + size > self.nbytes:
            return None
        bisect.insort(self._taken, (at, at + size))
        self.used_nbytes += size
        return at

    def give_back(self, offset: int, nbytes: int) -> None:
        """They are free."""
        size = _rounded(nbytes)
        self._taken.remove((offset, offset + size))
        self.used_nbytes -= size

    def write(self, offset: int, data: Any) -> None:
        """Puts bytes there."""
        source = np.frombuffer(data, np.uint8)
        self._data[offset : offset + source.nbytes] = source

    def view(self, offset: int, nbytes: int) -> Any:
        """What lies there."""
        return self._data[offset : offset + nbytes]


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _shared(name: str, nbytes: int) -> tuple[int, Any]:
    fd = memory_file(name)
    os.ftruncate(fd, nbytes)
    data = np.frombuffer(mmap.mmap(fd, nbytes), np.uint8)
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS | _FUTURE_WRITE)
    except OSError:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd, data
