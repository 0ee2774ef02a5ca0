"""Samples between two of their uses: each at the place that the plan has for it, in a file that its workers share.

No more samples than there are places are in rotation at a time, and they follow each other in the epoch's order. So the
sample at position p of it stands at place p modulo their number, and stays until the plan puts another one there.
Nothing is searched for, and nothing is chosen to be thrown out. A sample that is not found is made again.

    index    the bytes that each place has
             for each place: sample, epoch, order, bytes, checksum
    data     the places, one behind the other; as large as the largest sample so far

A place is locked while it is read or written, and all are while they are made larger, which empties them; whoever dies
holds no lock. Knows nothing of plans, datasets and workers.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.batch.layout import aligned

if TYPE_CHECKING:
    from swift_loader.settings.loader import LoaderConfig
    from swift_loader.settings.rotation import RotationSetting

_ENTRY = struct.Struct("<QQQQQ")
_ENTRIES = 4096
#: A place has so much more room than its first sample: numbers and texts differ by a few bytes.
_SLACK_NBYTES = 32
#: For so long it is tried to have all places at once.
_WAIT_S = 0.05
#: Whether there is memory left is asked each time that so much was written.
_LOOK_NBYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Use:
    """A use of a sample."""

    position: int
    """Of the sample, in the order."""
    index: int
    epoch: int
    order: int
    """The number of the order that it is for: of two samples that want a place, the one ordered later has it."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a carousel lies on."""

    index_fd: int
    data_fd: int
    place_count: int
    checks: bool
    """What is read may be other than what was written."""

    def close(self) -> None:
        """Lets go of it."""
        os.close(self.index_fd)
        os.close(self.data_fd)


class Carousel:
    """The samples in rotation, as one process has them.

    Args:
        ground: Where they lie. It stays its giver's.
        has_room: Says whether so many bytes more may be taken.
        tell: Told why samples cannot be kept.

    Raises:
        OSError: if this process may not open the index.
    """

    def __init__(self, ground: Ground, has_room: Callable[[int], bool], tell: Callable[[str], None]) -> None:
        from swift_loader.host.locks import Locks  # noqa: PLC0415 - other systems have no such locks, and import this

        self._ground = ground
        self._has_room = has_room
        self.tell = tell
        # Opened anew: locks belong to an opening, and what came by a fork or a message shares one with its giver.
        self._fd = os.open(f"/proc/self/fd/{ground.index_fd}", os.O_RDWR | os.O_CLOEXEC)
        self._locks = Locks(self._fd)
        self._threads = threading.Lock()
        self._unlooked = _LOOK_NBYTES
        self._has_given_up = self._is_closed = False

    def close(self) -> None:
        """Lets go of it. A thread that is late finds nothing and writes nothing: its descriptors may be others' now."""
        with self._threads:
            self._is_closed = True
            os.close(self._fd)

    def get(self, use: Use) -> Any | None:
        """The bytes of that sample, in memory of their own; None if they are not here."""
        try:
            with self._threads:
                if self._is_closed:
                    return None
                return self._read(use.position % self._ground.place_count, use)
        except OSError as error:
            self._give_up(error)
            return None

    def put(self, use: Use, memory: Any) -> None:
        """Keeps these bytes as that sample's, where there is room for them."""
        if self._has_given_up or not self._may_take(memory.nbytes):
            return
        try:
            with self._threads:
                if self._is_closed:
                    return
                if memory.nbytes > self._room():
                    self._enlarge(memory.nbytes)
                self._write(use.position % self._ground.place_count, use, memory)
        except OSError as error:
            self._give_up(error)

    def _read(self, at: int, use: Use) -> Any | None:
        with self._hold(at, alone=False) as has_it:
            index, epoch, _, nbytes, digest = self._entry(at)
            if not has_it or (index, epoch) != (use.index + 1, use.epoch):
                return None
            memory: Any = np.empty(nbytes, np.uint8)
            count = os.preadv(self._ground.data_fd, [memory], at * self._room())
            is_whole = count == nbytes and (not self._ground.checks or zlib.crc32(memory) == digest)
            return memory if is_whole else None

    def _write(self, at: int, use: Use, memory: Any) -> None:
        with self._hold(at, alone=True) as has_it:
            if has_it and memory.nbytes <= self._room() and self._entry(at)[2] <= use.order:
                self._replace(at, use, memory)

    def _replace(self, at: int, use: Use, memory: Any) -> None:
        digest = zlib.crc32(memory) if self._ground.checks else 0
        place = _ENTRIES + at * _ENTRY.size
        os.pwrite(self._fd, bytes(_ENTRY.size), place)  # whoever dies in the next line leaves nothing that looks whole
        if os.pwrite(self._ground.data_fd, memory, at * self._room()) != memory.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        entry = _ENTRY.pack(use.index + 1, use.epoch, use.order, memory.nbytes, digest)
        os.pwrite(self._fd, entry, place)

    def _enlarge(self, nbytes: int) -> None:
        """Gives all places the room that a sample needs; all that was kept is lost."""
        every = self._ground.place_count
        if not self._locks.take(0, every, _WAIT_S):
            return
        try:
            room = self._room()
            if nbytes > room:
                wanted = aligned(max(nbytes + _SLACK_NBYTES, room + room // 4))
                os.ftruncate(self._fd, _ENTRIES)
                os.ftruncate(self._ground.data_fd, 0)
                os.pwrite(self._fd, wanted.to_bytes(8, "little"), 0)
        finally:
            self._locks.leave(0, every)

    @contextmanager
    def _hold(self, place: int, *, alone: bool) -> Iterator[bool]:
        """Has the place; says whether it was to be had."""
        locks = self._locks
        has_it = locks.take(place) if alone else locks.share(place)
        try:
            yield has_it
        finally:
            if has_it:
                locks.leave(place)

    def _room(self) -> int:
        return int.from_bytes(os.pread(self._fd, 8, 0), "little")

    def _entry(self, place: int) -> tuple[int, ...]:
        return _ENTRY.unpack(os.pread(self._fd, _ENTRY.size, _ENTRIES + place * _ENTRY.size).ljust(_ENTRY.size, b"\0"))

    def _may_take(self, nbytes: int) -> bool:
        self._unlooked += nbytes
        if self._unlooked < _LOOK_NBYTES:
            return True
        self._unlooked = 0
        if self._has_room(_LOOK_NBYTES + nbytes):
            return True
        self._give_up(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
        return False

    def _give_up(self, error: OSError) -> None:
        """Each process for itself: the disk may be full for this one's samples and not for another's."""
        self._has_given_up = True
        self.tell(error.strerror or str(error))


def ground_at(fds: list[int], config: LoaderConfig) -> Ground:
    """Where samples lie, of the descriptors of its index and its data."""
    setting = config.rotation_setting
    assert setting is not None
    index_fd, data_fd = fds
    return Ground(index_fd, data_fd, setting.room(config.consumer_count), checks=setting.medium == "disk")


def told(setting: RotationSetting, why: str) -> str:
    """What the user is told of samples that are not kept."""
    where = f"with the prefix {setting.prefix}" if setting.medium == "disk" else "in memory"
    return (
        f"rotation_setting: samples cannot be kept {where} between their uses ({why}). They are made again for each "
        "use: the same epoch, but a slower one"
    )
