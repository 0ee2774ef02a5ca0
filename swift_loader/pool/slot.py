"""One slot: a sealed, anonymous memory file that both sides map once.

Anonymous, so that nothing has a name that could be left behind; sealed, so that nobody can shrink it under the other
side's feet. Who may touch it when is the ledger's business.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes: TypeAlias = npt.NDArray[np.uint8]

_PAGE = mmap.PAGESIZE
_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
#: Through ctypes, since a call there lets go of the interpreter lock: populating 38 MB takes 20 ms.
_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Slot:
    """One process's view of a slot."""

    __slots__ = ("fd", "mapping", "memory", "nbytes", "page_lock", "views")

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self.mapping = mmap.mmap(fd, nbytes)
        self.memory: Bytes = np.frombuffer(self.mapping, np.uint8)
        self.views: dict[Any, Any] = {}
        """What a room keeps about this memory, such as arrays on it, by its own keys. Dies with the mapping."""
        self.page_lock: Any = None
        """What a stage did to this memory as a whole. Ends with the slot, before the mapping: it holds that."""

    @classmethod
    def create(cls, nbytes: int) -> Self:
        """A new slot with at least ``nbytes`` of room, its pages present. Owns its descriptor."""
        size = room_for(nbytes)
        fd = os.memfd_create("swift-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            slot = cls(fd, size)
        except BaseException:
            os.close(fd)
            raise
        slot._populate(_MADV_POPULATE_WRITE)
        return slot

    @classmethod
    def map(cls, fd: int) -> Self:
        """Maps a slot that another process made. Takes the descriptor over."""
        slot = cls(fd, os.fstat(fd).st_size)
        # The pages are there already: this only enters them here, writable too, for half the work of the other advice.
        slot._populate(_MADV_POPULATE_READ)
        return slot

    def close(self) -> None:
        """Lets go of the descriptor; the memory stays for as long as an array views it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _populate(self, advice: int) -> None:
        # An older kernel refuses; then the pages come one by one at first touch, which is slower and nothing else.
        _madvise(self.memory.ctypes.data, self.nbytes, advice)


def room_for(nbytes: int) -> int:
    """``nbytes`` rounded up to whole pages, with up to an eighth of slack for the next, slightly larger batch."""
    step = max(_PAGE, (1 << max(0, nbytes.bit_length() - 4)) // _PAGE * _PAGE)
    return max(_PAGE, -(-nbytes // step) * step)
