"""Which epoch an iteration is: counted once for all workers that take part in it, whoever starts them, and however.

torch's DataLoader tells its workers no epoch. What they have in common is the seed that it has drawn for this
iteration, and, where workers stay, how often each has been asked to begin. The first worker that comes with such a pair
gives it the next number; the others find it. All this stands in a page of memory without a name, which a forked worker
has inherited and another opens by the number of the process that holds it.
"""

from __future__ import annotations

import os
import struct
import weakref
from typing import Any, Self

from swift_loader.errors import SwiftLoaderError
from swift_loader.host.locks import Locks
from swift_loader.host.memfile import memory_file

_NAME = "swift-epochs"
#: The epoch from which numbers are counted, entries that were ever written.
_HEAD = struct.Struct("<qq")
#: The rank, the seed, which beginning of that worker, the epoch.
_ENTRY = struct.Struct("<qqqq")
#: So many are remembered: iterations that go on at the same time are fewer.
_ENTRIES = 512
_NBYTES = _HEAD.size + _ENTRIES * _ENTRY.size
_WORD = (1 << 63) - 1
_WAIT_S = 60.0


class Epochs:
    """The page. Pickled, it is its process and descriptor: whoever reads that finds it as long as this object lives."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = memory_file(_NAME) if fd is None else fd
        self._begun = (os.getpid(), 0)
        weakref.finalize(self, os.close, self._fd).atexit = False
        if fd is None:
            os.pwrite(self._fd, bytes(_NBYTES), 0)

    def start_from(self, epoch: int) -> None:
        """The next iteration is that epoch, and the ones behind it count on from there."""
        with _Locked(self._fd) as page:
            page.write(epoch, 0, [])

    def next(self, rank: int, seed: int | None) -> int:
        """The epoch of the iteration that begins here.

        Args:
            rank: Ranks may share a page, where they were forked: each counts for itself.
            seed: What torch's workers of one iteration have in common; None: this process alone iterates.
        """
        pid = os.getpid()
        count = self._begun[1] + 1 if self._begun[0] == pid else 1
        self._begun = (pid, count)
        with _Locked(self._fd) as page:
            first, written, entries = page.read()
            own = [entry for entry in entries if entry[0] == rank]
            if seed is not None:
                seed &= _WORD
                known = next((entry[3] for entry in reversed(own) if entry[1:3] == (seed, count)), None)
                if known is not None:
                    return known
            epoch = own[-1][3] + 1 if own else first
            key = (seed, count) if seed is not None else (-1, 0)
            page.add(written, (rank, *key, epoch))
            return epoch

    def __getstate__(self) -> dict[str, Any]:
        return {"place": (os.getpid(), self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        pid, fd = state["place"]
        path = f"/proc/{pid}/fd/{fd}"
        try:
            is_ours = _NAME in os.readlink(path)  # noqa: PTH115 - it is no path: the name of a file in memory
            found = os.open(path, os.O_RDWR | os.O_CLOEXEC) if is_ours else None
        except OSError:
            found = None  # that process is gone: whoever reads this now counts from 0
        self.__init__(found)  # type: ignore[misc] # it has not been made yet


class _Locked:
    """The page, for this thread alone; in an opening of its own, since forked processes share theirs."""

    def __init__(self, fd: int) -> None:
        self._fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        if not Locks(self._fd).take(0, wait_s=_WAIT_S):
            os.close(self._fd)
            raise SwiftLoaderError(f"another process has held the epochs' numbers for {_WAIT_S:.0f} s: it stands still")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self) -> tuple[int, int, list[tuple[int, int, int, int]]]:
        """The first epoch, entries that were ever written, and those that are left, oldest first."""
        page = os.pread(self._fd, _NBYTES, 0)
        first, written = _HEAD.unpack_from(page)
        places = range(max(0, written - _ENTRIES), written)
        return first, written, [_ENTRY.unpack_from(page, _offset(place)) for place in places]

    def add(self, written: int, entry: tuple[int, int, int, int]) -> None:
        """Writes one more."""
        os.pwrite(self._fd, _ENTRY.pack(*entry), _offset(written))
        os.pwrite(self._fd, struct.pack("<q", written + 1), 8)

    def write(self, first: int, written: int, entries: list[tuple[int, int, int, int]]) -> None:
        """Writes all of it."""
        os.pwrite(self._fd, _HEAD.pack(first, written) + b"".join(_ENTRY.pack(*entry) for entry in entries), 0)


def _offset(place: int) -> int:
    return _HEAD.size + place % _ENTRIES * _ENTRY.size
