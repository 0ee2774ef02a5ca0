"""Which part of the data file is free.

The file is divided into arenas of one size. A process claims one and fills it from its begin; while it does, it holds
the arena's lock. An arena that no entry leads to and that nobody holds is free again: so nothing has to be given back,
and what a killed process has left half filled is found when it is empty. Claims are counted for each arena, which tells
a process whether what it has seen of it still holds.
"""

from __future__ import annotations

import os
import struct
import threading
from time import monotonic

import numpy as np

from swift_loader.reuse import entry, index
from swift_loader.reuse.files import Files
from swift_loader.reuse.locks import Locks
from swift_loader.reuse.reader import Reader

_ALIGNMENT = 64
_CLAIM = struct.Struct("<Q")
_WAIT_S = 5.0
#: The index is searched for free arenas again when the file has grown by this share since it was last in vain.
_GROWN = 8
#: And where it may not grow, after this.
_LOOK_S = 1.0


class Room:
    """Gives out room in the data file of one store, for one process."""

    def __init__(self, files: Files, locks: Locks, reader: Reader, most_nbytes: int | None) -> None:
        self._files, self._locks, self._reader = files, locks, reader
        self._arena_nbytes = files.header.arena_nbytes
        most = index.MOST_ARENAS if most_nbytes is None else most_nbytes // self._arena_nbytes
        self._most_arenas = min(most, index.MOST_ARENAS)
        self._ours = -1
        """The arena that we fill."""
        self._at = self._end = 0
        self._free: list[tuple[int, int]] = []
        """Arenas that were free when we looked, and how often they had been claimed by then."""
        self._look_at_count = 1
        self._look_at_s = 0.0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> int | None:
        """Where so many bytes may be written; None if there is no room.

        Raises:
            OSError: if the files cannot be written.
        """
        nbytes = capacity_of(nbytes)
        with self._lock:
            if self._at + nbytes > self._end and not self._claim(nbytes):
                return None
            place = self._at
            self._at += nbytes
            return place

    def nbytes(self) -> int:
        """What the files take, as the disk counts it."""
        return sum(os.fstat(fd).st_blocks * 512 for fd in (self._files.index_fd, self._files.data_fd))

    def _claim(self, nbytes: int) -> bool:
        count = -(-nbytes // self._arena_nbytes)
        if not self._locks.take(index.LOCK_ROOM, _WAIT_S):
            return False
        try:
            first = self._found() if count == 1 else None
            if first is None:
                first = self._grown(count)
            if first is None:
                return False
            if self._ours >= 0:
                self._locks.leave(index.LOCK_ARENA + self._ours)
            self._ours = first + count - 1
            self._at = index.RECORDS + first * self._arena_nbytes
            self._end = self._at + count * self._arena_nbytes
            return True
        finally:
            self._locks.leave(index.LOCK_ROOM)

    def _grown(self, count: int) -> int | None:
        """New arenas at the end of the file."""
        first = self._arena_count()
        if first + count > self._most_arenas:
            return None
        os.ftruncate(self._files.data_fd, index.RECORDS + (first + count) * self._arena_nbytes)
        for arena in range(first, first + count):
            self._locks.take(index.LOCK_ARENA + arena)
            self._count_claim(arena)
        for arena in range(first, first + count - 1):
            self._locks.leave(index.LOCK_ARENA + arena)
        return first

    def _found(self) -> int | None:
        """An arena that is free again."""
        arenas = self._arena_count()
        is_time = arenas >= self._look_at_count or (arenas >= self._most_arenas and monotonic() > self._look_at_s)
        if not self._free and is_time:
            self._free = self._look(arenas)
            self._look_at_s = monotonic() + _LOOK_S
            if not self._free:
                self._look_at_count = arenas + arenas // _GROWN + 1
        while self._free:
            arena, claims = self._free.pop()
            if self._locks.take(index.LOCK_ARENA + arena):
                if self._claims(arena) == claims:
                    self._count_claim(arena)
                    return arena
                self._locks.leave(index.LOCK_ARENA + arena)
        return None

    def _look(self, arenas: int) -> list[tuple[int, int]]:
        claims = [self._claims(arena) for arena in range(arenas)]  # before the entries are looked at
        words = self._reader.all_words()
        words = words[words[:, entry.CAPACITY] != 0]
        starts = words[:, entry.OFFSET].astype(np.int64) - index.RECORDS
        ends = starts + words[:, entry.CAPACITY].astype(np.int64) - 1
        used = np.zeros(arenas + 1, np.int64)
        within = (starts >= 0) & (ends >= starts) & (ends < arenas * self._arena_nbytes)
        np.add.at(used, starts[within] // self._arena_nbytes, 1)
        np.add.at(used, ends[within] // self._arena_nbytes + 1, -1)
        taken = np.cumsum(used) > 0
        return [
            (arena, claims[arena]) for arena in range(arenas - 1, -1, -1) if not taken[arena] and arena != self._ours
        ]

    def _arena_count(self) -> int:
        nbytes = os.fstat(self._files.data_fd).st_size - index.RECORDS
        return max(0, -(-nbytes // self._arena_nbytes))

    def _claims(self, arena: int) -> int:
        raw = os.pread(self._files.index_fd, _CLAIM.size, index.CLAIMS + _CLAIM.size * arena)
        return int(_CLAIM.unpack(raw.ljust(_CLAIM.size, b"\0"))[0])

    def _count_claim(self, arena: int) -> None:
        word = _CLAIM.pack(self._claims(arena) + 1)
        os.pwrite(self._files.index_fd, word, index.CLAIMS + _CLAIM.size * arena)


def capacity_of(nbytes: int) -> int:
    """The room that a record of so many bytes takes."""
    return max(_ALIGNMENT, -(-nbytes // _ALIGNMENT) * _ALIGNMENT)
