"""The slots of a worker, and the one that a batch is made in.

The worker has mapped the slots that it was ordered to fill, and makes a larger one itself where a batch does not fit:
that one's descriptor goes to the consumer with the parcel. A worker that dies before has made it for nobody: the slot
of that number is still the one before, for the consumer, and the kernel has the other back.
"""

from __future__ import annotations

import mmap
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from swift_loader.wire.slot import Slot
from swift_loader.worker.berth import Wanted, refuse_too_large

if TYPE_CHECKING:
    from swift_loader.wire.messages import Order


class Slots:
    """The slots that a worker has mapped, by number."""

    def __init__(self, most_nbytes: int) -> None:
        self.held: dict[int, Slot] = {}
        self.most_nbytes = most_nbytes
        """A batch may be so large."""

    def adopt(self, number: int, fd: int) -> None:
        """Maps a slot that came with an order; instead of the one before it, if the consumer has another now."""
        self.held[number] = self._own(Slot.map(fd))
        self.held[number].close()  # the mapping is enough

    def make(self, number: int, nbytes: int, room: int) -> Slot:
        """A slot of at least so many bytes; of ``room``, which is how large others are, if that is allowed.

        Raises:
            NoRoom: where the batch may not be so large, or there is no memory.
        """
        refuse_too_large(nbytes, self.most_nbytes)
        slot = self.held[number] = self._own(Slot.create(max(nbytes, min(room, self.most_nbytes))))
        return slot

    def forget(self, number: int) -> None:
        """The consumer will not hear of the slot that was made under this number."""
        self.held.pop(number).close()

    @staticmethod
    def _own(slot: Slot) -> Slot:
        slot.mapping.madvise(mmap.MADV_DONTFORK)  # what the dataset forks cannot write to it
        return slot


class SlotBerth:
    """The slot of one order."""

    __slots__ = ("_order", "_slots", "careful", "following", "made", "slot_ns", "wanted")

    def __init__(self, slots: Slots, order: Order, word: Any, *, careful: bool, following: int | None) -> None:
        self._slots = slots
        self._order = order
        self.wanted = Wanted(word, order.seq)
        self.careful = careful
        self.following = following
        self.made: Slot | None = None
        """The slot that had to be made for this order."""
        self.slot_ns = 0

    def forget(self) -> None:
        """The order is not answered with a batch: what was made for it goes."""
        if self.made is not None:
            self._slots.forget(self._order.slot)

    def room(self, nbytes: int, keep: int = 0) -> Slot:
        order = self._order
        slot = self._slots.held.get(order.slot)
        if slot is not None and slot.nbytes >= nbytes:
            return slot
        begun = perf_counter_ns()
        larger = self._slots.make(order.slot, nbytes, order.room)
        if slot is not None and keep:
            larger.memory[:keep] = slot.memory[:keep]
        if self.made is not None:
            self.made.close()
        self.made = larger
        self.slot_ns += perf_counter_ns() - begun
        return larger
