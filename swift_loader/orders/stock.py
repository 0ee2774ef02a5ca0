"""How many batches are made ahead of the consumer, and how many of them by one worker. Pure.

What holds new tickets back, apart from the want of a free slot:
- so many are merged or on their way that workers stay busy until `data_queue_size` batches wait for the consumer, or
  fewer where that was not given and batches are large;
- a worker has `max_buffer_size` parcels waiting to be merged, on top of the orders it has;
- a worker elsewhere waits while those here keep half of what is to be ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.orders.book import Book
    from swift_loader.settings.loader import LoaderConfig

#: One worker runs ahead by no more memory than this, or two batches: each new slot costs what several batches cost, and
#: while one worker makes a slot, the others would run ahead and make more of them.
_AHEAD_NBYTES = 256 << 20
#: However large batches are, so many are kept ready: one is handed out while another one waits.
_LEAST_READY = 2
#: The consumer works with one while others are ready.
_IN_USE = 1
#: Where batches take longer than this, and are large, no order waits in a channel, and a single batch is kept ready.
_UNHURRIED_NS = 80_000_000

#: Where nobody has said how many orders wait at a worker, quick small batches may: a worker answers all its orders at
#: once, and stands idle until the next come. So many at most, that take so long, and so much memory.
_QUEUED_MOST = 32
_QUEUED_NS = 3_000_000
_QUEUED_NBYTES = 4 << 20


class Stock:
    """What one consumer's workers have made or are to make, counted; and whether that is enough."""

    def __init__(self, config: LoaderConfig, *, has_near: bool = True) -> None:
        self._config = config
        self._has_near = has_near
        """Some of the workers are here."""
        self.ready_count = 0
        """Merged deliveries that the consumer has not taken."""
        self.ordered_count = 0
        """Orders that were not answered, of all workers."""
        self.unmerged_count = 0
        """Parcels that wait for earlier ones, of all workers."""
        self.largest_slot = 0
        self._is_slow = self._is_unhurried = False
        """Batches take long, or very long, as far as the last one tells."""
        self.ready_most = 0
        """How many merged batches are to wait for the consumer, beside those that workers have in hand."""
        self.is_short = False
        """Batches are too large for as many as usual to be ready."""
        self._fit()

    def made_by(self, book: Book) -> None:
        """A worker has made another batch."""
        is_unhurried = book.batch_ns > _UNHURRIED_NS
        if book.is_slow != self._is_slow or is_unhurried != self._is_unhurried:
            self._is_slow, self._is_unhurried = book.is_slow, is_unhurried
            self._fit()

    def grew_to(self, slot_nbytes: int) -> None:
        """A slot is larger than all before."""
        self.largest_slot = slot_nbytes
        self._fit()

    def depth(self, book: Book) -> int:
        """How many orders a worker should have: the one that it is at, and those in its channel."""
        if self.is_short and self._is_at_hand(book):  # to come back for an order costs them nothing
            return book.width
        return book.width + book.queue_depth(self._most_queued(book), self.largest_slot)

    def _most_queued(self, book: Book) -> int:
        given = self._config.message_queue_size
        if not (self._config.deepens_queues and book.has_made and self.largest_slot):
            return given
        return max(given, min(_QUEUED_MOST, int(_QUEUED_NS / book.batch_ns), _QUEUED_NBYTES // self.largest_slot))

    def most_on_their_way(self, depth: int, width: int) -> int:
        """Of all batches, so many may be ready or ordered.

        Channels are kept filled: ten batches of 50 us are gone before an idle worker has woken up.
        """
        workers = self._config.worker_count
        if self.is_short:
            return self.ready_most + workers
        return max(self.ready_most + workers * max(width, depth - width) // width, workers * depth // width)

    def most_ahead(self, depth: int, width: int) -> int:
        """How many batches of one worker, or of those behind one line, may be ordered or wait to be merged."""
        most = depth + width * self._config.max_buffer_size
        return min(most, width * max(2, _AHEAD_NBYTES // self.largest_slot)) if self.largest_slot else most

    def is_enough(self, book: Book, most: int) -> bool:
        """Whether a worker is to make nothing new, since there are ``most`` already."""
        if self.ready_count + self.ordered_count < most:
            return False
        # Where others have more orders than they should, since they were quick once, one that has none gets its own.
        return bool(book.outstanding) or self.ready_count >= self.ready_most

    def is_left_to_others(self, book: Book) -> bool:
        """Whether a worker elsewhere makes nothing new: those here keep up, and what they make costs no network."""
        return book.is_far and self._has_near and self.ready_count > self.ready_most // 2

    def is_full(self, book: Book, leased_count: int) -> bool:
        """Whether large batches together take as much memory as they may, waiting ones too. Asked if `is_short`.

        Args:
            book: Whose worker is to make another one.
            leased_count: So many the consumer holds.
        """
        workers = self._config.worker_count
        count = self.ready_count + self.ordered_count + self.unmerged_count
        # One is in use. While the next one is taken there are two of them for a moment: not worth a slot of its own.
        if book.outstanding and leased_count > 1:
            count += 1
        most = self.ready_most + workers
        return count >= (most if self._is_at_hand(book) else max(most, 2 * workers))

    def _is_at_hand(self, book: Book) -> bool:
        """Whether what a worker makes is here at once, beside the time that it takes to make."""
        return self._is_unhurried and not book.transit_ns

    def _fit(self) -> None:
        """Fits the stock to what batches are.

        Where the user has not said how many are to be ready, these, those in the making and the one in use have so much
        memory together; slow ones half of it, since a few milliseconds that somebody comes late are nothing to them.
        """
        config, nbytes = self._config, self.largest_slot
        most = config.data_queue_size
        if config.ahead_nbytes is not None and nbytes:
            fitting = config.ahead_nbytes // (2 * nbytes if self._is_slow else nbytes)
            least = 1 if self._is_unhurried else _LEAST_READY
            most = min(most, max(least, fitting - config.worker_count - _IN_USE))
        self.ready_most, self.is_short = most, most < config.data_queue_size
