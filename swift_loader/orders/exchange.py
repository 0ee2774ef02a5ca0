"""Where the consumer's thread and the telecom threads meet: orders go out, parcels come in, deliveries are taken.

    consumer's thread   take() <------- ready queue <-------+
    telecom threads     came(), empty() -> dispatch -> ready queue
                        orders_for()    -> dispatch -> orders

One lock guards the dispatch, the ledger, the shelf and the books; nothing is sent, mapped, started or waited for under
it. A bell may be rung under it: that takes no lock, and who is woken by it waits here until we are out.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from swift_loader.errors import FailureReport, LoaderClosed, NoRoom
from swift_loader.host.memory import free_nbytes
from swift_loader.orders.asked import Asked
from swift_loader.orders.dispatch import Dispatch
from swift_loader.orders.lease import Copies, Lease, Returns
from swift_loader.orders.ledger import Holder, Ledger
from swift_loader.orders.means import Means
from swift_loader.orders.ready import Ready, Taken
from swift_loader.orders.shelf import Shelf
from swift_loader.orders.specs import Specs
from swift_loader.orders.tickets import Delivery, Full
from swift_loader.wire import messages
from swift_loader.wire.slot import SMALL_NBYTES, Slot

if TYPE_CHECKING:
    from swift_loader.orders.book import Book
    from swift_loader.orders.death import Death
    from swift_loader.plan.plan import Plan
    from swift_loader.plan.position import Position
    from swift_loader.wire.messages import Caution, Parcel
    from swift_loader.wire.recipe import Recipe


class Exchange:
    """The shared state of one pool."""

    def __init__(
        self, recipe: Recipe, memory_budget: int, most_slots: int, books: Sequence[Book], slot_words: memoryview
    ) -> None:
        self.returns = Returns()
        self.ready = Ready()
        self._recipe = recipe
        self._books = books
        self._serving: set[int] = set()
        for book in books:
            book.serving = self._serving
        self._slot_words = slot_words
        self._lock = threading.RLock()  # reentrant for `is_entered`, and for a signal handler that looks at statistics
        self._ledger = Ledger(memory_budget, most_slots)
        # With more in use, batches are copied out: a user who keeps many would else take all descriptors.
        self._most_busy = most_slots // 2
        self._shelf = Shelf()
        self.means = Means(self._ledger)
        self._specs = Specs()
        self.dispatch: Dispatch | None = None
        """Once there is a plan. Others only look at it."""
        self.asked: Asked | None = None
        """What is wanted, where that is asked for one by one; else it is the plan's next."""

    @property
    def plan(self) -> Plan | None:
        """Known once a dataset was built somewhere."""
        return None if self.dispatch is None else self.dispatch.plan

    def set_up(self, plan: Plan) -> None:
        """Tickets are handed out from now on. Called once, by the thread that serves the first worker to greet."""
        with self._lock:
            self.dispatch = Dispatch(
                self._recipe, plan, self._ledger, self._shelf, self._slot_words, self._books
            )  # fmt: skip
            if self.asked is not None:
                self.dispatch.tickets = self.asked

    def ask(self, epoch: int, step: int) -> None:
        """This batch is wanted, after all that were asked for before. Called by any thread."""
        with self._lock:
            assert self.asked is not None
            self.asked.ask(epoch, step)
            _ring([book for book in self._books if book.takes_orders])

    # Called by the consumer's thread, or the landing thread where there is one ----------------------------------------

    def take(self, timeout_s: float) -> Taken | None:
        """The next delivery, which holds its slot, or an error that ends all; None if nothing came in time.

        One that was made void, or whose pool was closed, between the queue and the lock is none: its slot goes home.
        """
        delivery = self._awaited(timeout_s) if timeout_s else self.ready.get(0.0)
        if delivery is None or isinstance(delivery, BaseException):
            return delivery
        # Between these lines another thread may call restart(), which did not find this one any more, or close().
        with self._lock:
            number = delivery.parcel.slot if isinstance(delivery, Full) else -1
            if delivery.ticket.seq < self.ready.first_valid:
                if number >= 0:
                    self._ledger.thrown_away(number)
                return None
            slot = self._shelf.get(number)
            if slot is None and number >= 0:
                return LoaderClosed("the loader was closed while a batch was handed out")
            self._bring_home()
            self._known.taken()
            if slot is not None and isinstance(delivery, Full):
                self._ledger.landing(number)
                kind = Lease if self._ledger.busy_count < self._most_busy else Copies
                delivery.hold = kind(slot, number, self.returns)
            for book in self._known.hunger.to_feed():
                book.bell.ring()
        return delivery

    def _awaited(self, timeout_s: float) -> Taken | None:
        dispatch = self.dispatch
        if dispatch is None:
            return self.ready.get(timeout_s)
        dispatch.homecoming.is_awaited = True
        try:
            if dispatch.stock.is_short:
                self._begins_to_wait(dispatch)
            return self.ready.get(timeout_s)
        finally:
            dispatch.homecoming.is_awaited = False

    def _begins_to_wait(self, dispatch: Dispatch) -> None:
        with self._lock:
            if dispatch.wants_slot:  # a worker has waited for a batch to be dropped: that has happened now, or will not
                _ring(dispatch.waiting_for_slots())

    def is_entered(self) -> bool:
        """Whether this very thread is inside: then it was interrupted there, by a signal handler that asks."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return] # as threading.Condition asks it

    def look_for_slots(self) -> NoRoom | None:
        """Brings home what was dropped; the error to raise if the consumer holds all memory there is.

        Called before it waits again. What another thread drops after this look rings the telecom thread instead.
        """
        is_short = self.dispatch is not None and self.dispatch.wants_slot and self.means.are_cut
        free = free_nbytes() if is_short else None  # there may be more by now: others have let go of theirs
        with self._lock:
            if free is not None:
                self.means.fit(self._shelf.nbytes, free)
            if self._bring_home() or (free is not None and self._known.has_room):
                self._offer_slots()
                return None
            if self.dispatch is None or not self.dispatch.starves_for_slots():
                return None
            return self.means.no_room(self.dispatch.stock.largest_slot)

    def restart(self, at: Position) -> int:
        """What is taken next is what follows from there; all that was made for others is void.

        Gives back the number of the next ticket: all that have a lower one are void, wherever they are. May be called
        while another thread waits in `take`.
        """
        with self._lock:
            void = self._known.restart(at)
            void += self.ready.begin_anew(self._known.next_seq)
            for delivery in void:
                if isinstance(delivery, Full):
                    self._ledger.thrown_away(delivery.parcel.slot)
            return self._known.next_seq

    def statistics(self) -> dict[str, float]:
        """Slots, counted, and the workers that have made a batch. Called by anybody, a signal handler too."""
        with self._lock:
            self._bring_home()
            held = {f"slots_{holder.value}": self._ledger.held_by(holder) for holder in Holder}
            warm = sum(book.has_made for book in self._books)
            sizes = {"slot_bytes": self._ledger.nbytes, "slot_bytes_most": self._ledger.budget}
            return {**held, **sizes, "workers_warm": warm}

    # Called by the telecom thread that serves the line --------------------------------------------------------------

    def orders_for(self, book: Book) -> tuple[list[Caution], bytes, list[int]] | None:
        """What to send to a worker now, if anything: cautions; then orders, with descriptors of slots new to it.

        Sent outside the lock. A worker that dies before it reads them leaves them in its book, for `gone`.
        """
        if self.dispatch is None:
            return None
        with self._lock:
            self._bring_home()
            orders = self.dispatch.orders_for(book)
            self.returns.wanted = self.dispatch.wants_slot
            # From now on whoever drops a lease rings; one that was dropped just before is seen here.
            if self.returns.wanted and self._bring_home():
                orders += self.dispatch.orders_for(book)
            if book.lacks_slot or book.slotless_ns:
                book.note_slots(orders, perf_counter_ns())
            if not orders:
                return None
            cautions, book.cautions = book.cautions, []
            # The slots are this worker's from now on: nobody replaces one before it answers.
            fds = [self._shelf[order.slot].fd for order in orders if order.brings_slot]
        return cautions, messages.write_orders(orders), fds

    def came(self, book: Book, parcels: list[Parcel], fds: list[int], now_ns: int) -> None:
        """Parcels have come; only one that comes alone brings a slot. The worker may be gone since.

        Before `gone` for that worker: all that it had said is read first. The descriptor is mapped outside the lock.
        """
        new_slot = Slot.map(fds[0]) if fds else None
        free = free_nbytes() if new_slot is not None and new_slot.nbytes >= SMALL_NBYTES else None
        # Kept until the lock is free again: unmapping memory, and unlocking it for a device, takes milliseconds.
        replaced: Slot | None = None
        with self._lock:
            if new_slot is not None:
                replaced = self._shelf.put(parcels[0].slot, new_slot, book)
                if replaced is not None:
                    replaced.close()
            if free is not None:
                self.means.fit(self._shelf.nbytes, free)
            for parcel in parcels:
                self._specs.read(parcel, book)
                self._deliver(self._known.filled(book, parcel, self._shelf[parcel.slot].nbytes, now_ns), book)
        del replaced

    def empty(self, book: Book, seq: int, report: FailureReport | None) -> None:
        """A worker answered without a batch: the order had been taken back, or failed with a report. Before `gone`."""
        with self._lock:
            self._deliver(self._known.answered_empty(book, seq, report), book)
            if self._known.wants_slot:
                self._offer_slots()

    def gone(self, book: Book, death: Death) -> None:
        """A worker is gone, and all that it had said has come: its tickets are made again, but for one that kills.

        One that lingers in the kernel may still write to the slots that it was ordered to fill: those are lost to all.
        """
        if self.dispatch is None:
            return
        lost: list[Slot | None] = []  # unmapped when the lock is free again
        with self._lock:
            if death.lingers:
                lost += [self._shelf.lose(order.slot) for order in book.outstanding.values()]
            poison = self.dispatch.died(book, death)
            if poison is not None:
                report = death.poisoned(self.dispatch.death_count(poison))
                self._deliver(self.dispatch.failed(poison, report, book), book)
            self._offer_slots()
        for slot in lost:
            if slot is not None:
                slot.close()

    def slots_came_home(self) -> None:
        """Batches were dropped, for whose slots workers wait."""
        with self._lock:
            if self._bring_home():
                self._offer_slots()

    def others_serve(self, book: Book) -> bool:
        """Whether there is a worker that takes orders, beside this one. Looks at no other: each death asks."""
        return len(self._serving) > (book.number in self._serving)

    def close(self) -> None:
        """Lets go of the slots; batches that are still held keep their memory. Called by who puts the lights out."""
        self.returns.wanted = False
        with self._lock:
            slots = self._shelf.clear()
        for slot in slots:
            slot.close()

    # Under the lock ---------------------------------------------------------------------------------------------

    @property
    def _known(self) -> Dispatch:
        assert self.dispatch is not None
        return self.dispatch

    def _bring_home(self) -> bool:
        """Counts the leases that came and went; says whether there were any. More may come while it does."""
        came_home = self.returns.came_home
        any_came = bool(came_home)
        while came_home:
            self._ledger.changed(*came_home.popleft())
        return any_came

    def _offer_slots(self) -> None:
        if self.dispatch is not None:
            _ring(self.dispatch.waiting_for_slots())

    def _deliver(self, deliveries: list[Delivery], book: Book) -> None:
        """Hands out what was merged, and rings those whose parcels no longer wait; ``book`` is seen to all the same."""
        self.ready.put(deliveries)
        for delivery in deliveries:
            maker = self._books[delivery.worker]
            if maker is not book and maker.hungry:
                self._known.hunger.ends(maker)
                maker.bell.ring()


def _ring(books: list[Book]) -> None:
    for book in books:
        book.bell.ring()
