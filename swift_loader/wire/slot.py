"""One slot: a sealed, anonymous memory file that both sides map once.

Anonymous, so that nothing has a name that could be left behind; sealed, so that nobody can shrink it under the other
side's feet. Who may touch it when is the ledger's business.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import resource
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from swift_loader.errors import NoRoom
from swift_loader.host.limits import limit_of_file_size
from swift_loader.host.memfile import memory_file
from swift_loader.host.memory import refuse_too_much

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes: TypeAlias = npt.NDArray[np.uint8]

_PAGE = mmap.PAGESIZE
_MADV_POPULATE_READ, MADV_POPULATE_WRITE = 22, 23
#: Pages are made in steps of this size, and before each it is looked whether there is memory for it.
_STEP_NBYTES = 8 << 20
#: Smaller slots are made without looking.
SMALL_NBYTES = 1 << 20
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
        """A new slot with at least ``nbytes`` of room, its pages present. Owns its descriptor.

        Raises:
            NoRoom: if there is no memory for it.
        """
        size = room_for(nbytes)
        fd = memory_file("swift-slot")
        try:
            os.ftruncate(fd, size)
            with contextlib.suppress(OSError):  # a sandbox without seals; only our own workers could shrink it
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            slot = cls(fd, size)
            slot._populate_in_steps()
        except OSError as error:
            os.close(fd)
            no_room = NoRoom(f"no memory for a batch of {nbytes:,} bytes: {error.strerror}{_limits(error.errno)}")
            no_room.needed = nbytes
            raise no_room from error
        except BaseException:
            os.close(fd)
            raise
        return slot

    @classmethod
    def map(cls, fd: int) -> Self:
        """Maps a slot that another process made. Takes the descriptor over."""
        slot = cls(fd, os.fstat(fd).st_size)
        # Whoever made it may have died since: this descriptor is our own, so the memory is there.
        # The pages are there already: this only enters them here, writable too, for half the work of the other advice.
        slot._populate(_MADV_POPULATE_READ)
        return slot

    def close(self) -> None:
        """Lets go of the descriptor; the memory stays for as long as an array views it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _populate_in_steps(self) -> None:
        # The kernel gives pages that it does not have, and ends a process when they are touched: one of a control group
        # with little memory left, and there mostly the largest, the trainer. Workers that make slots at the same time
        # see what the others took.
        if self.nbytes < SMALL_NBYTES:
            self._populate(MADV_POPULATE_WRITE)
            return
        for start in range(0, self.nbytes, _STEP_NBYTES):
            left = self.nbytes - start
            refuse_too_much(left, self.nbytes)
            self._populate(MADV_POPULATE_WRITE, start, min(_STEP_NBYTES, left))

    def _populate(self, advice: int, start: int = 0, nbytes: int = 0) -> None:
        # An older kernel refuses; then the pages come one by one at first touch, which is slower and nothing else.
        _madvise(self.memory.ctypes.data + start, nbytes or self.nbytes, advice)


def _limits(number: int | None) -> str:
    if number == errno.EFBIG:
        return f": {limit_of_file_size()}. Raise that, or make batch_size smaller"
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f". The process may have {limit:,} bytes of addresses (ulimit -v): raise that, or make batch_size smaller"


def room_for(nbytes: int) -> int:
    """``nbytes`` rounded up to whole pages, with up to a thirtieth of slack for the next, slightly larger batch."""
    step = max(_PAGE, (1 << max(0, nbytes.bit_length() - 6)) // _PAGE * _PAGE)
    return max(_PAGE, -(-nbytes // step) * step)
