"""The account of one worker's orders: what it is to make, which slots it knows, and how fast it is. Pure.

All of it is read and written under the exchange's lock, by whichever thread is inside; but whether orders are taken is
said by the telecom thread that serves the line, and the cell is written by the worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swift_loader.batch.layout import BatchSpec
    from swift_loader.wire.messages import Caution, Order

#: Orders wait in a worker's channel for about this long, so that it has work while the consumer's Python is busy.
_QUEUED_NS = 20_000_000
#: But they reserve no more memory than this, if that is not a single slot: pages that are new cost more than they save.
_QUEUED_NBYTES = 64 << 20
_SMOOTHING = 0.2


class Ringable(Protocol):
    """What wakes the thread that serves a line."""

    def ring(self) -> None:
        """The line may be given orders. Takes no lock."""
        ...


class Progress(Protocol):
    """Where a worker is, by its own account: see `Cell`."""

    @property
    def seq(self) -> int:
        """The order in hand."""
        ...


class Book:
    """One worker's, and that of those who follow it."""

    hungry = False
    """It could have taken an order and got none. Written by `Hunger`."""
    lacks_slot = False
    """It got none, the last time, since there was no slot."""
    unmerged = 0
    """Parcels of this worker that wait for earlier ones."""
    has_told = False
    """The worker has answered an order, with a batch or with what kept it from making one."""
    batch_ns = 0.0
    """What its batches take, of late; 0 where none was made."""
    transit_ns = 0.0
    """And their way here, where they are made elsewhere."""

    def __init__(self, number: int, cell: Progress, bell: Ringable, width: int = 1, *, is_far: bool = False) -> None:
        self.number = number
        self._makers = width, is_far
        self.cell = cell
        self.bell = bell
        self.serving: set[int] = set()
        """The numbers of those that take orders: one set for all books of a pool."""
        self.outstanding: dict[int, Order] = {}
        """Orders that were not answered yet, oldest first."""
        self._begin()

    def _begin(self) -> None:
        self.slotless_ns = 0
        """Since when it could have had an order, had there been a slot; 0 where that is not so."""
        self.slot_waits: dict[int, int] = {}
        """How long that went on before an order came, for those that did not come back yet."""
        self.known: set[int] = set()
        """Slots that the worker has mapped."""
        self.cautions: list[Caution] = []
        """To be said before the next orders."""
        self.told_count = 0
        """So many of the samples that are left out the worker was told of."""
        self.specs: dict[int, BatchSpec] = {}
        """Layouts, by the numbers that the worker has given them."""

    @property
    def width(self) -> int:
        """So many workers make what is ordered here."""
        return self._makers[0]

    @property
    def is_far(self) -> bool:
        """They are elsewhere: they make what those here do not come to."""
        return self._makers[1]

    @property
    def takes_orders(self) -> bool:
        """Whether the worker has built its dataset, and nobody has ended it.

        Who asks may be a moment late: what is ordered of one that has just died is made again.
        """
        return self.number in self.serving

    def opens(self) -> None:
        """The worker takes orders from now on. Said, as the next, by the thread that serves the line; takes no lock."""
        self.serving.add(self.number)

    def shuts(self) -> None:
        """It takes none any more."""
        self.serving.discard(self.number)

    def close_account(self) -> None:
        """The worker is gone, and what it had in hand was seen to: the next one knows nothing."""
        self.outstanding.clear()
        self.has_told = False
        self._begin()

    def note_slots(self, orders: Sequence[Order], now_ns: int) -> None:
        """It was just seen to: notes how long the first of these orders has waited for a slot, or that one does now."""
        if orders and self.slotless_ns:
            self.slot_waits[orders[0].seq] = now_ns - self.slotless_ns
            self.slotless_ns = 0
        if self.lacks_slot:
            self.slotless_ns = self.slotless_ns or now_ns

    def took(self, nanoseconds: int, transit_ns: int = 0) -> None:
        """A batch was made in this time, and was so long on its way."""
        if transit_ns:
            self.transit_ns += _SMOOTHING * (transit_ns - self.transit_ns) if self.transit_ns else transit_ns
        self.batch_ns += _SMOOTHING * (nanoseconds - self.batch_ns) if self.batch_ns else nanoseconds

    @property
    def is_slow(self) -> bool:
        """Batches take so long that orders should not wait behind one."""
        return self.batch_ns > _QUEUED_NS / 2

    @property
    def has_made(self) -> bool:
        """Whether a batch was made by this line's workers."""
        return self.batch_ns > 0

    def queue_depth(self, most: int, batch_nbytes: int) -> int:
        """How many orders should wait in the channel."""
        if batch_nbytes:
            most = min(most, max(1, _QUEUED_NBYTES // batch_nbytes))
        most *= self.width
        # None waits before it is known how slow they are: the next one may be done by another worker meanwhile.
        if not self.batch_ns:
            return 0
        # Where batches have a way to go, all workers may end together and stand idle until the next orders have come.
        least = self.width if self.transit_ns else 1
        return max(least, min(most, int(self.width * (_QUEUED_NS + self.transit_ns) / self.batch_ns)))

    def in_hand(self) -> Order | None:
        """The order that the worker is at: as it says itself, or the oldest. Of several workers nobody here knows."""
        if self.width > 1:
            return None
        for order in self.outstanding.values():
            return self.outstanding.get(self.cell.seq, order)
        return None
