"""Which workers could take an order and have got none, and which of them are to be woken. Pure.

To wake a thread costs more than most quick batches do, so not all are woken for each batch that is taken. The queue has
those here before those elsewhere, and of each those with the fewest orders first; an entry that no longer says how many
its worker has is passed over when it is met, so that a batch costs the same among ten workers and among ten thousand.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.orders.book import Book
    from swift_loader.orders.stock import Stock

#: With a good stock, the consumer sees to new orders once it has taken what a worker makes in so long.
_WORTH_ORDERING_NS = 1_000_000
_FEW = 64


class Hunger:
    """Of one consumer's workers."""

    def __init__(self, books: Sequence[Book], stock: Stock) -> None:
        self._books = books
        self._stock = stock
        self._hungry: dict[int, Book] = {}
        """All of them, by their numbers; who has waited longest comes first."""
        self._queue: list[tuple[bool, int, int]] = []
        """Of those the ones that may take a new ticket: whether elsewhere, how many orders, and whose. A heap."""
        self._queued_as: dict[int, int] = {}
        """Under how many orders each of those is in the queue."""
        self._taken = 0
        """Deliveries since the consumer last saw to new orders ..."""
        self._slowest_ns = 0.0
        """... and what the slowest worker took for a batch, then or since."""
        self._until_asked = 0
        """So many deliveries more, until all are asked again which is the slowest."""

    def begins(self, book: Book) -> None:
        """A worker could have taken an order and got none."""
        book.hungry = True
        self._hungry[book.number] = book
        self._enqueue(book)

    def ends(self, book: Book) -> None:
        """It is seen to, or is gone."""
        if book.hungry:
            book.hungry = False
            del self._hungry[book.number]
            self._queued_as.pop(book.number, None)

    def changed(self, book: Book) -> None:
        """A worker has another number of orders, or of parcels that wait."""
        if book.hungry:
            self._enqueue(book)

    def took(self, book: Book) -> None:
        """A worker has made a batch."""
        self._slowest_ns = max(self._slowest_ns, book.batch_ns)

    def taken(self) -> None:
        """The consumer has taken a delivery."""
        self._taken += 1

    def to_feed(self) -> list[Book]:
        """Who is to be given orders in place of what was taken: those that have the fewest. They count as seen to.

        With a good stock one worker begins when half of it is gone, and a second one where that does not keep up: all
        of them at once would each get a run of batches, and finish the first ones later than few would.
        """
        stock = self._stock
        is_well_stocked = stock.ready_count > stock.ready_most // 2
        if is_well_stocked and self._taken * self._slowest_ns < _WORTH_ORDERING_NS:
            return []
        self._look_for_the_slowest()
        first = self._first()
        if first is None or stock.is_left_to_others(first):
            return []
        most = stock.most_on_their_way(stock.depth(first), first.width)
        missing = most - stock.ready_count - stock.ordered_count
        if missing < most // 2 and (is_well_stocked or first.outstanding):
            return []
        fed: list[Book] = []
        while (book := self._first()) is not None and not stock.is_left_to_others(book):
            # One that has run ahead too far comes back when something of its own is merged.
            heapq.heappop(self._queue)
            del self._queued_as[book.number]
            depth, count = stock.depth(book), len(book.outstanding)
            if count + book.unmerged < stock.most_ahead(depth, book.width):
                self.ends(book)
                fed.append(book)
                missing -= depth - count
            if missing <= 0 or (fed and stock.ready_count):
                break
        return fed

    def waiting(self, most: int | None, but_for: int) -> list[Book]:
        """Who is to be given a slot that came free, ``most`` of them: who has waited longest. They count as seen to.

        Args:
            most: So many; None for all.
            but_for: Not who has yet to answer for this ticket, which is the next to be made: it could not take it.
        """
        found: list[Book] = []
        for book in self._hungry.values():
            if most is not None and len(found) >= most:
                break
            is_free = len(book.outstanding) < self._stock.depth(book)
            is_free = is_free and not self._stock.is_left_to_others(book)
            if is_free and book.takes_orders and but_for not in book.outstanding:
                found.append(book)
        for book in found:
            self.ends(book)
        return found

    def _enqueue(self, book: Book) -> None:
        count = len(book.outstanding)
        if self._queued_as.get(book.number) == count:
            return
        self._queued_as[book.number] = count
        if len(self._queue) > 4 * len(self._books) + _FEW:  # most entries are old, and nobody has met them
            self._queue = [(self._books[one].is_far, count, one) for one, count in self._queued_as.items()]
            heapq.heapify(self._queue)
            return  # it is among them
        heapq.heappush(self._queue, (book.is_far, count, book.number))

    def _first(self) -> Book | None:
        while self._queue:
            _, count, number = self._queue[0]
            book = self._books[number]
            if self._queued_as.get(number) == count:
                if book.takes_orders:
                    return book
                del self._queued_as[number]
            heapq.heappop(self._queue)
        return None

    def _look_for_the_slowest(self) -> None:
        """As often as there are workers, so that it costs each delivery the same however many there are."""
        self._until_asked -= self._taken
        self._taken = 0
        if self._until_asked <= 0:
            self._until_asked = len(self._books)
            self._slowest_ns = max(book.batch_ns for book in self._books)
