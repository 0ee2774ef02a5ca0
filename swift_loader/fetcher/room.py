"""The memory that what was fetched lies in: one sealed file, which others map, given out and taken back here alone."""

from __future__ import annotations

import bisect
import fcntl
import mmap
import os
from contextlib import suppress
from typing import Any

import numpy as np

from swift_loader.host.memfile import memory_file
from swift_loader.host.systems import flags
from swift_loader.stores import page

#: Stretches begin at multiples of it.
ALIGNMENT = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Room:
    """Stretches of the memory, the first that is large enough; and the page that tells of them."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.arena_fd, self._memory = _shared("swift-fetched", nbytes)
        self.page_fd, told = _shared("swift-fetched-page", page.NBYTES)
        """Descriptors by which others read, and cannot write."""
        self.page = page.Page(told)
        self._data = np.frombuffer(self._memory, np.uint8)
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

    def fits_at(self, offset: int, nbytes: int, wanted: int) -> bool:
        """Whether so many bytes could be written there, were what lies there now given back."""
        at = bisect.bisect_left(self._taken, (offset, offset + _rounded(nbytes)))
        before = self._taken[at - 1][1] if at else 0
        behind = self._taken[at + 1][0] if at + 1 < len(self._taken) else self.nbytes
        return behind - before >= _rounded(wanted)

    def return_to_system(self, offset: int, nbytes: int) -> None:
        """Its memory is the system's again, until something else is written there."""
        with suppress(OSError):
            self._memory.madvise(mmap.MADV_REMOVE, offset, _rounded(nbytes))

    def write(self, offset: int, data: Any) -> None:
        """Puts bytes there."""
        source = np.frombuffer(data, np.uint8)
        self._data[offset : offset + source.nbytes] = source

    def view(self, offset: int, nbytes: int) -> Any:
        """What lies there."""
        return self._data[offset : offset + nbytes]


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _shared(name: str, nbytes: int) -> tuple[int, mmap.mmap]:
    fd = memory_file(name)
    try:
        os.ftruncate(fd, nbytes)
        memory = mmap.mmap(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return os.open(f"/proc/self/fd/{fd}", flags("O_RDONLY", "O_CLOEXEC")), memory
    finally:
        os.close(fd)
