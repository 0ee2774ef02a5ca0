"""Bytes out of the files of a store: mapped, where a process may be lost, or read, where it may not.

Copying from a mapping is half the price of reading into the same place. But memory that lies on a file which somebody
shortens, or on a disk that fails, kills whoever touches it. So a worker looks before it touches: the files must be long
enough, and the pages in memory already; what is not is read, and an error comes back as one. In the instant between, a
file may still be cut: that worker dies, another takes its place and finds the file shorter. In the training process
everything is read.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from swift_loader.host.mapping import read_into
from swift_loader.reuse import entry, index

if TYPE_CHECKING:
    from swift_loader.reuse.entry import Words

_PAGE = mmap.PAGESIZE
#: Pages of one record that are asked for at once; larger records are read.
_MOST_PAGES = 1 << 14


class Reader(Protocol):
    """What a store asks of its files."""

    def look(self) -> bool:
        """Looks how long the files are now; gives back whether the index is as long as it should be."""

    def raw(self, number: int) -> Any:
        """The entry of a sample, as it lies there. To be called soon after `look`."""

    def words(self, numbers: Any) -> Words:
        """The entries of many."""

    def all_words(self) -> Words:
        """All entries."""

    def copy(self, offset: int, target: Any) -> None:
        """Fills ``target``, an array of bytes.

        Raises:
            OSError: if there are not so many, or the disk fails.
        """


class Plain:
    """Reads."""

    def __init__(self, index_fd: int, data_fd: int, count: int) -> None:
        self._index_fd, self._data_fd, self._count = index_fd, data_fd, count

    def look(self) -> bool:
        """See `Reader`."""
        return os.fstat(self._index_fd).st_size >= index.place_of(self._count)

    def raw(self, number: int) -> bytes:
        """See `Reader`."""
        raw = os.pread(self._index_fd, entry.NBYTES, index.place_of(number))
        return raw.ljust(entry.NBYTES, b"\0")

    def words(self, numbers: Any) -> Words:
        """See `Reader`."""
        raw = b"".join(self.raw(number) for number in numbers.tolist())
        return np.frombuffer(raw, np.uint64).reshape(-1, 8)

    def all_words(self) -> Words:
        """See `Reader`."""
        raw = os.pread(self._index_fd, self._count * entry.NBYTES, index.ENTRIES)
        return np.frombuffer(raw[: len(raw) // entry.NBYTES * entry.NBYTES], np.uint64).reshape(-1, 8)

    def copy(self, offset: int, target: Any) -> None:
        """See `Reader`."""
        read_into(self._data_fd, target, offset)


class Mapped(Plain):
    """Copies out of mappings."""

    def __init__(self, index_fd: int, data_fd: int, count: int) -> None:
        super().__init__(index_fd, data_fd, count)
        self._entries_map = _mapped(index_fd, index.place_of(count))
        self._bytes = memoryview(self._entries_map)
        self._words = np.frombuffer(self._entries_map, np.uint64, offset=index.ENTRIES).reshape(-1, 8)
        self._data: Any = np.empty(0, np.uint8)
        self._start = 0
        self._end = 0
        """Up to here the mapping may be touched."""
        self._is_whole = False
        """And the index may be."""
        self._resident = (ctypes.c_ubyte * _MOST_PAGES)()
        self._residents = memoryview(self._resident)
        self._mincore = ctypes.PyDLL(None, use_errno=True).mincore
        self._mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

    def look(self) -> bool:
        """See `Reader`."""
        nbytes = os.fstat(self._data_fd).st_size
        if nbytes > len(self._data):
            self._data = np.frombuffer(_mapped(self._data_fd, nbytes), np.uint8)
            self._start = self._data.ctypes.data
        self._end = nbytes
        self._is_whole = super().look()
        return self._is_whole

    def raw(self, number: int) -> Any:
        """See `Reader`."""
        if not self._is_whole:
            return super().raw(number)
        place = index.place_of(number)
        return bytes(self._bytes[place : place + entry.NBYTES])

    def words(self, numbers: Any) -> Words:
        """See `Reader`. To be called after `look`."""
        found: Words = self._words[numbers]
        return found

    def all_words(self) -> Words:
        """See `Reader`."""
        return self._words if Plain.look(self) else super().all_words()

    def copy(self, offset: int, target: Any) -> None:
        """See `Reader`. To be called soon after `look`."""
        end = offset + target.nbytes
        first = offset & -_PAGE
        if end <= self._end and end - first <= _MOST_PAGES * _PAGE and self._is_resident(first, end - first):
            target[...] = self._data[offset:end]
        else:
            read_into(self._data_fd, target, offset)

    def _is_resident(self, first: int, nbytes: int) -> bool:
        if self._mincore(self._start + first, nbytes, self._resident) != 0:
            return False
        return 0 not in self._residents[: -(-nbytes // _PAGE)].tobytes()


def _mapped(fd: int, nbytes: int) -> mmap.mmap:
    """So many bytes of a file that was so long when it was looked at.

    Raises:
        OSError: if somebody has cut it since.
    """
    try:
        mapping = mmap.mmap(fd, nbytes, prot=mmap.PROT_READ)
    except ValueError as error:
        raise OSError(errno.ESTALE, "somebody cuts its files while they are opened") from error
    mapping.madvise(mmap.MADV_DONTFORK)
    return mapping
