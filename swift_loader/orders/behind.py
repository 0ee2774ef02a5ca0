"""Orders that wait behind a batch that a slow worker is at: others may make them sooner. Pure.

Of each worker that is slow, all that wait are in here; what was answered, taken back or begun meanwhile is passed over
when it is met.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.orders.book import Book
    from swift_loader.wire.messages import Order

_FEW = 64


class Behind:
    """Those of one consumer, the lowest first."""

    def __init__(self, books: Sequence[Book]) -> None:
        self._books = books
        self._waiting: list[tuple[int, int]] = []
        """Tickets, and whose they are. A heap."""
        self._most = _FEW
        """With so many, those that were answered are thrown out."""

    def ordered(self, order: Order, book: Book) -> None:
        """A slow worker was given another order."""
        if len(book.outstanding) > book.width:
            self._add(order.seq, book)

    def turned_slow(self, book: Book) -> None:
        """A worker takes long now, which it did not before."""
        for seq in islice(book.outstanding, book.width, None):
            self._add(seq, book)

    def take(self, is_valid: Callable[[Order], bool]) -> Order | None:
        """The lowest, which is another worker's from now on."""
        while self._waiting:
            seq, number = heapq.heappop(self._waiting)
            book = self._books[number]
            order = book.outstanding.get(seq)
            # One that a worker has begun, or comes to next, is not taken from it; nor one from a worker that is quick
            # by now: should that be slow again, it is in here again.
            if order is None or not book.is_slow or not is_valid(order):
                continue
            if seq != book.cell.seq and seq not in islice(book.outstanding, book.width):
                return order
        return None

    def _add(self, seq: int, book: Book) -> None:
        if len(self._waiting) >= self._most:  # most of them were answered, and nobody has asked for any
            self._waiting = [one for one in self._waiting if one[0] in self._books[one[1]].outstanding]
            heapq.heapify(self._waiting)
            self._most = 2 * len(self._waiting) + len(self._books) + _FEW
        heapq.heappush(self._waiting, (seq, book.number))

    def clear(self) -> None:
        """None of them is wanted any more."""
        self._waiting.clear()
