"""A file in memory, read where that may be done safely.

Copying from a mapping is half the price of reading into the same place. But memory that lies on a file which somebody
shortens, or on a disk that fails, kills whoever touches it. So one looks before one touches: the file must be long
enough, and the pages in memory already; what is not is read, and an error comes back as one. What was seen to be there
is believed for a second: in that time a file may still be cut, and whoever touches it then is lost.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from _typeshed import ReadableBuffer as Buffer

    Bytes: TypeAlias = npt.NDArray[np.uint8]

#: What is asked of the kernel at once, and remembered.
EXTENT_NBYTES = 1 << 20
PAGE_NBYTES = mmap.PAGESIZE
_PAGES = EXTENT_NBYTES // PAGE_NBYTES
_BELIEVED_S = 1.0
#: All extents of a file are looked over in less time than those of a batch are found, if there are no more.
_FEW = 4096

_mincore = ctypes.PyDLL(None, use_errno=True).mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class MappedFile:
    """Takes the descriptor over, and closes it when it is let go of; may be read by several threads."""

    _fd = -1

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.nbytes = os.fstat(fd).st_size
        self.data: Bytes = np.empty(0, np.uint8)
        """All of it; to be touched only where `are_there` says so."""
        if self.nbytes:
            # Forked children keep it: a dataset that was looked into before its workers were forked is read in them.
            self.data = np.frombuffer(mmap.mmap(fd, self.nbytes, prot=mmap.PROT_READ), np.uint8)
        self._start = self.data.ctypes.data
        self._seen = np.zeros(-(-self.nbytes // EXTENT_NBYTES), bool)
        self._seen_s = 0.0

    def are_there(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> bool:
        """Whether all bytes from each begin to its end may be touched."""
        if not len(begins):
            return True
        if int(ends.max()) > self.nbytes:
            return False
        if self.is_there():
            return True
        seen = self.believed()
        first, last = begins // EXTENT_NBYTES, (ends - 1) // EXTENT_NBYTES
        if int((last - first).max()) <= 1:
            # A byte is looked for in bytes: a third of the time that numpy's `all` takes for a few hundred.
            if 0 not in seen[first].tobytes() and 0 not in seen[last].tobytes():
                return True
            wanted = {*first.tolist(), *last.tolist()}
        else:
            wanted = set().union(*map(range, first.tolist(), (last + 1).tolist()))
        return all(seen[at] or self.look(at) for at in sorted(wanted))

    def is_there(self) -> bool:
        """Whether all of it may be touched; not always known of a large one."""
        return len(self._seen) < _FEW and 0 not in self.believed().tobytes()

    def bring(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """They will be copied soon: of a file of this machine there is nothing to be done for that."""

    def believed(self) -> npt.NDArray[np.bool_]:
        """Which extents were seen to be there, not long ago."""
        now = monotonic()
        if now - self._seen_s > _BELIEVED_S:
            self._seen_s = now
            self._seen[:] = False
        return self._seen

    def look(self, extent: int) -> bool:
        """Whether all pages of an extent are there now."""
        begin = extent * EXTENT_NBYTES
        end = min(begin + EXTENT_NBYTES, self.nbytes)
        pages = (ctypes.c_ubyte * _PAGES)()
        if end > os.fstat(self._fd).st_size or _mincore(self._start + begin, end - begin, pages) != 0:
            return False
        if 0 in bytes(pages[: -(-(end - begin) // PAGE_NBYTES)]):
            return False
        self._seen[extent] = True
        return True

    def copy(self, offset: int, target: Any) -> None:
        """Fills ``target``, an array of bytes that lies in one piece.

        Raises:
            OSError: if the file has not so many, or the disk fails.
        """
        end = offset + target.nbytes
        seen = self.believed()
        extents = range(offset // EXTENT_NBYTES, (end - 1) // EXTENT_NBYTES + 1)
        if end <= self.nbytes and all(seen[at] or self.look(at) for at in extents):
            target[...] = self.data[offset:end]
        else:
            read_into(self._fd, target, offset)

    def again(self, begin: int, end: int) -> bool:  # noqa: ARG002 - others fetch them anew
        """Whether bytes that are damaged may be others when they are read again."""
        return False

    def __del__(self) -> None:
        self.close()

    def close(self, close: Callable[[int], None] = os.close) -> None:
        """Lets go of the file; what views it keeps its memory."""
        if self._fd >= 0:
            close(self._fd)  # given, since at the very end of an interpreter the modules' names are gone
            self._fd = -1


def whole_file(fd: int) -> memoryview:
    """All of a file, mapped for as long as somebody looks at it; the descriptor is closed."""
    try:
        if not os.fstat(fd).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    finally:
        os.close(fd)


def read_into(fd: int, target: Any, offset: int) -> None:
    """Fills ``target``, an array of bytes, from there.

    Raises:
        OSError: if there are not so many, or the disk fails.
    """
    view = memoryview(target)
    while view.nbytes:
        count = os.preadv(fd, [view], offset)
        if not count:
            raise OSError(errno.ENODATA, "the file is shorter than what it should hold")
        view, offset = view[count:], offset + count


class HeldFile:
    """The bytes of an object, all of which are here, to be read as a file is."""

    def __init__(self, data: Buffer) -> None:
        self.data: Bytes = np.frombuffer(memoryview(data), np.uint8)
        self.nbytes = self.data.nbytes

    def bring(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """They are here."""

    def copy(self, offset: int, target: Any) -> None:
        """Fills ``target``."""
        target[...] = self.data[offset : offset + target.nbytes]


class AnyFile(Protocol):
    """What is read as a file is: mapped, held, or elsewhere."""

    nbytes: int
    data: Bytes

    def bring(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """They will be copied soon."""

    def copy(self, offset: int, target: Any) -> None:
        """Fills ``target``, an array of bytes that lies in one piece."""
