"""Which part of the data file is free.

The file is divided into arenas of one size. A process claims one, or as many in a row as a record needs, and fills them
from their begin; while it does, it holds their locks. An arena that no entry leads to and that nobody holds is free
again: so nothing has to be given back, and what a killed process has left half filled is found when it is empty. Claims
are counted for each arena, which tells a process whether what it has seen of it still holds.
"""

from __future__ import annotations

import os
import threading
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from swift_loader.host.locks import Locks
from swift_loader.reuse import entry, index
from swift_loader.reuse.files import Files
from swift_loader.reuse.reader import Reader

if TYPE_CHECKING:
    from swift_loader.reuse.entry import Words

_ALIGNMENT = 64
_WORD = 8
_TOGETHER = 16
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
        most = index.MOST_ARENAS if most_nbytes is None else -(-most_nbytes // self._arena_nbytes)
        self._most_arenas = min(most, index.MOST_ARENAS)
        self._ours = (0, 0)
        """The arenas that we fill: the first, and how many."""
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
        least = -(-nbytes // self._arena_nbytes)
        if not self._locks.take(index.LOCK_ROOM, wait_s=_WAIT_S):
            return False
        try:
            # Room for several at once, so that less is left over at its end; towards the end of all room for fewer.
            left = (self._most_arenas - self._arena_count()) * self._arena_nbytes
            several = max(least, -(-min(_TOGETHER, left // (_TOGETHER * nbytes)) * nbytes // self._arena_nbytes))
            self._look_if_due(least)
            ways = ((self._found, several), (self._found, least), (self._grown, several), (self._grown, least))
            for claim, count in ways:
                first = claim(count)
                if first is not None:
                    return self._turn_to(first, count)
            return False
        finally:
            self._locks.leave(index.LOCK_ROOM)

    def _turn_to(self, first: int, count: int) -> bool:
        start = index.RECORDS + first * self._arena_nbytes
        before, before_count = self._ours
        if before_count and start == self._end:  # they follow ours: what is left of those is filled too
            kept = (self._at - index.RECORDS) // self._arena_nbytes
        else:
            kept, self._at = first, start
        done = before + before_count if kept == first else kept
        if done > before:
            self._locks.leave(index.LOCK_ARENA + before, done - before)
        self._ours = kept, first + count - kept
        self._end = start + count * self._arena_nbytes
        return True

    def _grown(self, count: int) -> int | None:
        """New arenas at the end of the file."""
        first = self._arena_count()
        if first + count > self._most_arenas or not self._locks.take(index.LOCK_ARENA + first, count):
            return None
        os.ftruncate(self._files.data_fd, index.RECORDS + (first + count) * self._arena_nbytes)
        self._count_claims(first, self._claims(first, count))
        return first

    def _look_if_due(self, count: int) -> None:
        """Looks for arenas that are free again, if fewer than ``count`` are known, and not too often."""
        arenas = self._arena_count()
        is_time = arenas >= self._look_at_count
        is_time |= arenas + count > self._most_arenas and monotonic() > self._look_at_s
        if len(self._free) < count and is_time:
            self._free = self._look(arenas)
            self._look_at_s = monotonic() + _LOOK_S
            if len(self._free) < count:
                self._look_at_count = arenas + arenas // _GROWN + 1

    def _found(self, count: int) -> int | None:
        """Arenas in a row that are free again."""
        at = 0
        while at + count <= len(self._free):
            row = self._free[at : at + count]
            if row[-1][0] - row[0][0] != count - 1:
                at += 1
                continue
            del self._free[at : at + count]
            if self._is_had(row):
                return row[0][0]
        return None

    def _is_had(self, row: list[tuple[int, int]]) -> bool:
        first, before = row[0][0], np.array([claims for _, claims in row], np.uint64)
        if not self._locks.take(index.LOCK_ARENA + first, len(row)):
            return False
        if (self._claims(first, len(row)) != before).any():
            self._locks.leave(index.LOCK_ARENA + first, len(row))
            return False
        self._count_claims(first, before)
        return True

    def _look(self, arenas: int) -> list[tuple[int, int]]:
        claims = self._claims(0, arenas).tolist()  # before the entries are looked at
        words = self._reader.all_words()
        words = words[words[:, entry.CAPACITY] != 0]
        starts = words[:, entry.OFFSET].astype(np.int64) - index.RECORDS
        ends = starts + words[:, entry.CAPACITY].astype(np.int64) - 1
        used = np.zeros(arenas + 1, np.int64)
        within = (starts >= 0) & (ends >= starts) & (ends < arenas * self._arena_nbytes)
        np.add.at(used, starts[within] // self._arena_nbytes, 1)
        np.add.at(used, ends[within] // self._arena_nbytes + 1, -1)
        taken = np.cumsum(used) > 0
        taken[self._ours[0] : sum(self._ours)] = True
        return [(arena, claims[arena]) for arena in range(arenas) if not taken[arena]]

    def _arena_count(self) -> int:
        nbytes = os.fstat(self._files.data_fd).st_size - index.RECORDS
        return max(0, -(-nbytes // self._arena_nbytes))

    def _claims(self, first: int, count: int) -> Words:
        raw = os.pread(self._files.index_fd, _WORD * count, index.CLAIMS + _WORD * first)
        return np.frombuffer(raw.ljust(_WORD * count, b"\0"), np.uint64)

    def _count_claims(self, first: int, before: Words) -> None:
        os.pwrite(self._files.index_fd, (before + np.uint64(1)).tobytes(), index.CLAIMS + _WORD * first)


def capacity_of(nbytes: int) -> int:
    """The room that a record of so many bytes takes."""
    return max(_ALIGNMENT, -(-nbytes // _ALIGNMENT) * _ALIGNMENT)
