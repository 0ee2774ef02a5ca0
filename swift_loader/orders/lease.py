"""A batch's hold on its slot: arrays that view the slot and say so when they are gone.

The saying is done by a finalizer, which runs in any thread, in the middle of anything: it takes no lock, and in a
forked child it does nothing, since the slot there is the parent's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from swift_loader.host.bell import Bell
from swift_loader.host.systems import in_forked_children
from swift_loader.orders.ledger import LANDING

if TYPE_CHECKING:
    import numpy.typing as npt

    from swift_loader.wire.slot import Slot

    Array: TypeAlias = npt.NDArray[Any]


_forks = 0
"""Counts the forks between the first process and this one: cheaper to look at than the process's number."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - the process itself has changed
    _forks += 1


in_forked_children(_count_fork)


class Returns:
    """Where dropped leases are posted for one pool.

    Posted to by whoever drops a batch, in any thread; emptied by whoever enters the exchange next, under its lock. A
    telecom thread that finds no slot sets `wanted` and then looks once more: a lease that was dropped before is seen by
    that look, one that is dropped later rings.
    """

    def __init__(self) -> None:
        self.came_home: deque[tuple[int, int]] = deque()
        """Slots, and by how much the number of their leases changed."""
        self.wanted = False
        """Set while somebody waits for a slot: only then is the bell rung."""
        self.bell = Bell()
        self._forks = _forks

    def post(self, slot: int, change: int = -1) -> None:
        """The leases of ``slot`` have changed: by default, one is gone. Takes no lock: `deque.append` is one step."""
        if self._forks != _forks:
            return
        self.came_home.append((slot, change))
        if self.wanted:
            self.bell.ring()


class LeasedArray(np.ndarray[Any, Any]):
    """An array on a slot's memory that holds the slot for as long as it lives."""

    lease: Lease | None = None

    def __del__(self) -> None:
        if self.lease is not None:
            self.lease.returns.post(self.lease.number)


class Lease:
    """Makes the arrays of one batch and counts them. See `Holding`.

    Used by one thread: the consumer's, or the landing thread. Its arrays are dropped in any, also while others are
    still being made: until `landed` tells how many there were, the ledger counts `LANDING` for them: the slot stays.
    """

    __slots__ = ("count", "has_landed", "number", "returns", "room")

    def __init__(self, slot: Slot, number: int, returns: Returns) -> None:
        self.room, self.number, self.returns = slot, number, returns
        self.count = 0
        self.has_landed = False

    @property
    def memory(self) -> Array:
        """See `Holding`."""
        return self.room.memory

    @property
    def views(self) -> dict[Any, Any]:
        """See `Holding`."""
        return self.room.views

    def landed(self) -> None:
        """See `Holding`."""
        # Whoever is interrupted between these two lines loses the slot. The other way round, it would come home twice.
        self.has_landed = True
        self.returns.post(self.number, self.count - LANDING)

    def __del__(self) -> None:
        if not self.has_landed:  # whoever took the delivery was interrupted before it made a batch of it
            self.landed()

    def array(self, shape: tuple[int, ...], dtype: str, offset: int) -> Array:
        """A view of the slot that holds it."""
        # On the mapping itself: of arrays on an array, numpy has a view hold the one that owns the memory. A view of
        # this array would then hold the slot's memory but not its lease, and the slot be filled anew under the user.
        array = LeasedArray(shape, dtype, self.room.mapping, offset)
        array.lease = self
        self.count += 1
        return array


class Copies(Lease):
    """Makes a batch's arrays off the slot, which is free again once the batch has landed.

    For a user who keeps more batches than there are descriptors for their slots.
    """

    __slots__ = ()

    def array(self, shape: tuple[int, ...], dtype: str, offset: int) -> Array:
        """A copy."""
        return np.ndarray(shape, dtype, self.room.mapping, offset).copy()
