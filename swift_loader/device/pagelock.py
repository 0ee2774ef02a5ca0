"""Slots' memory, page-locked: the device reads it without a copy through the driver's own memory.

A lock is kept in the slot itself, so it ends with the slot: when the pool has let go of it and no array of it is left,
neither in a batch nor in a copy under way. It holds the mapping, since memory must be unlocked before it is unmapped;
what waits for the mapping's own end (a weak reference, say) comes too late.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_loader.host.warn import warn_user

if TYPE_CHECKING:
    from swift_loader.device.driver import Driver
    from swift_loader.device.stage import Room


class PageLockRefused(Exception):
    """The driver does not lock this memory; says why."""


class PageLock:
    """Locks ``memory`` until the last reference to this goes."""

    __slots__ = ("_address", "_driver", "_memory", "_pid")

    def __init__(self, driver: Driver, memory: Any) -> None:
        self._pid = 0  # nothing to unlock yet
        self._driver, self._memory = driver, memory
        self._address = int(memory.ctypes.data)
        why = driver.lock(self._address, memory.nbytes)
        if why is not None:
            raise PageLockRefused(why)
        self._pid = os.getpid()

    def __del__(
        self, is_finalizing: Callable[[], bool] = sys.is_finalizing, getpid: Callable[[], int] = os.getpid
    ) -> None:
        # In a forked child the lock is the parent's. When the interpreter ends, the driver may be gone before this,
        # and the lock goes with the process.
        if is_finalizing() or self._pid != getpid():
            return
        why = self._driver.unlock(self._address)
        if why is not None:
            warn_user(f"memory of a slot could not be unlocked: {why}")


class PageLocks:
    """Locks each slot when it is first landed, until one is refused. That is told once, by a warning."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._is_refused = False
        self._to_tell: str | None = None

    def open(self) -> None:
        """Called once, on the consumer's thread; not needed where the driver was opened already."""
        self._driver.open()

    def cover(self, room: Room) -> bool:
        """Whether this slot is locked, by now."""
        if room.page_lock is None and not self._is_refused:
            try:
                room.page_lock = PageLock(self._driver, room.memory)
            except PageLockRefused as refused:
                self._is_refused = True  # the next one would be refused too, and asking may take long
                self._to_tell = _why_not(str(refused), room.memory.nbytes)
        return room.page_lock is not None

    def tell(self) -> None:
        """Warns of a refusal; to be called on the consumer's thread, so that its filters and its loop are meant."""
        if self._to_tell is not None:
            message, self._to_tell = self._to_tell, None
            warn_user(message)


def _why_not(why: str, nbytes: int) -> str:
    import resource  # noqa: PLC0415 - not every system has it

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "no limit is set" if soft == resource.RLIM_INFINITY else f"the limit is {soft // 1024:,} kB"
    return (
        f"a slot of {nbytes:,} bytes could not be page-locked: {why}. Batches reach the device all the same, with one "
        f"more copy each, through memory that torch or the driver locks. What usually helps: a higher `ulimit -l` "
        f"({limit}; in a container `--ulimit memlock=-1`), more free memory, or a smaller memory_budget"
    )
