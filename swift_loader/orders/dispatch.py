"""Which worker gets which ticket, in which slot; and what becomes of a parcel. Pure: decides, and acts on nothing.

Called under the exchange's lock, from telecom threads and the consumer's. Tickets are numbered through all epochs
(`seq`); an order is valid while its slot's word holds its number, and that word is the only place where this is written
down. The words lie on the page that workers see: that is how an order is taken back. Nothing else leaves this file.

How many batches are made ahead, the stock says. It never holds back the lowest unfinished ticket: that is ordered
before all that could fill the stock, and a ticket that must be made again goes before any new one. Nothing here looks
at all workers for a single batch, so that it costs the same however many there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from swift_loader.orders.asked import Asked
from swift_loader.orders.behind import Behind
from swift_loader.orders.homecoming import Homecoming
from swift_loader.orders.hunger import Hunger
from swift_loader.orders.ledger import Holder, Ledger
from swift_loader.orders.merge import AsTheyCome, InOrder, Merge
from swift_loader.orders.poison import Charges
from swift_loader.orders.stock import Stock
from swift_loader.orders.tickets import Delivery, Failed, Full, Ticket, Tickets
from swift_loader.plan.position import Position
from swift_loader.wire.messages import Order, Parcel

if TYPE_CHECKING:
    from swift_loader.errors import FailureReport
    from swift_loader.orders.book import Book
    from swift_loader.orders.death import Death
    from swift_loader.orders.shelf import Shelf
    from swift_loader.plan.plan import Plan
    from swift_loader.wire.recipe import Recipe

#: Orders that one worker is given at a time: more would hand it a whole run of steps, which the others' must wait for.
_BURST = 12


class Dispatch:
    """The tickets of one consumer.

    Args:
        recipe: What is made.
        plan: Of which samples.
        ledger: Who holds each slot.
        shelf: Which of them were made.
        words: One for each: the number of the order that may fill it.
        books: One for each worker.
    """

    def __init__(
        self,
        recipe: Recipe,
        plan: Plan,
        ledger: Ledger,
        shelf: Shelf,
        words: memoryview,
        books: Sequence[Book],
    ) -> None:
        config = recipe.config
        self.plan = plan
        self._ledger, self._shelf = ledger, shelf
        self._words = words
        self._books = books
        self._merge: Merge[Delivery] = InOrder() if config.in_order else AsTheyCome()
        self._redo: list[Ticket] = []
        """Tickets that must be made again, or wait for a slot; the lowest first."""
        self._charges = Charges(config)
        self.tickets: Tickets | Asked = Tickets(plan, recipe.consumer, self._merge.epoch)
        """Others may stand here before the first is given out."""
        self.stock = Stock(config, has_near=not all(book.is_far for book in books))
        self.hunger = Hunger(books, self.stock)
        self.homecoming = Homecoming(self._ledger)
        self._behind = Behind(books)
        self.tickets.turn_to(Position())

    def restart(self, at: Position) -> list[Delivery]:
        """What is wanted next is another step than the next one; gives back what was merged or waiting and is void."""
        for book in self._books:
            book.unmerged = 0
            self.hunger.changed(book)
            for order in book.outstanding.values():
                self._words[order.slot] = 0
        self.stock.ready_count = self.stock.unmerged_count = 0
        self._redo.clear()
        self._behind.clear()
        self._charges.clear()
        void = self._merge.restart(self.tickets.next_seq)
        self.tickets.turn_to(at)
        return void

    def orders_for(self, book: Book) -> list[Order]:
        """The orders that a worker should be sent now; it counts as hungry if it could take more."""
        orders: list[Order] = []
        book.lacks_slot = False
        depth = self.stock.depth(book)
        most, most_ahead = self.stock.most_on_their_way(depth, book.width), self.stock.most_ahead(depth, book.width)
        while len(book.outstanding) < depth and len(orders) < _BURST:
            ticket = self._ticket_for(book, most, most_ahead)
            slot = None if ticket is None else self._slot_for(book)
            if ticket is None or slot is None:
                if ticket is not None:
                    heapq.heappush(self._redo, ticket)
                    book.lacks_slot = True
                self.hunger.begins(book)
                return orders
            orders.append(self._ordered(ticket, slot, book))
        if book.hungry:
            self.hunger.ends(book)
        return orders

    def filled(self, book: Book, parcel: Parcel, slot_nbytes: int, now_ns: int) -> list[Delivery]:
        """A parcel has come; gives back what may be delivered now."""
        order = self._answered(parcel.seq, book)
        book.has_told = True
        was_slow = book.is_slow
        book.took(parcel.cost.made_ns, parcel.cost.transit_ns)
        if book.is_slow and not was_slow:
            self._behind.turned_slow(book)
        self.hunger.took(book)
        self.stock.made_by(book)
        self._ledger.filled(order.slot, slot_nbytes)
        if slot_nbytes > self.stock.largest_slot:
            self._ledger.expect(slot_nbytes)
            self.stock.grew_to(slot_nbytes)
        if not self._is_valid(order):
            self._ledger.thrown_away(order.slot)
            return []
        self._charges.dropped(order.seq)
        ticket = Ticket(order.seq, order.epoch, order.step)
        waited_ns = book.slot_waits.pop(order.seq, 0) if book.slot_waits else 0
        return self._merged(order.seq, Full(ticket, parcel, book.number, now_ns, waited_ns), book)

    def answered_empty(self, book: Book, seq: int, report: FailureReport | None) -> list[Delivery]:
        """The worker answered without a batch: it failed, or the order had been taken back (no report)."""
        order = self._answered(seq, book)
        book.slot_waits.pop(seq, None)
        valid = self._is_valid(order)
        self._ledger.given_back(order.slot)
        book.has_told = book.has_told or report is not None
        if not valid or report is None:
            return []
        self._charges.dropped(seq)
        ticket = Ticket(order.seq, order.epoch, order.step)
        return self._merged(order.seq, Failed(ticket, report, book.number), book)

    def died(self, book: Book, death: Death) -> Ticket | None:
        """The worker is gone; its tickets are to be made again. Gives back the one that has killed too many."""
        guilty = None if death.is_expected else book.in_hand()
        poison = None
        for order in book.outstanding.values():
            if self._is_valid(order):
                ticket = Ticket(order.seq, order.epoch, order.step)
                if order is guilty and self._charges.is_given_up(order.seq, death):
                    poison = ticket
                else:
                    heapq.heappush(self._redo, ticket)
            self._words[order.slot] = 0
            if death.lingers:
                self._ledger.lost(order.slot)
            else:
                self._ledger.given_back(order.slot)
        self.stock.ordered_count -= len(book.outstanding)
        self.hunger.ends(book)
        book.close_account()
        return poison

    def death_count(self, ticket: Ticket) -> int:
        """How many workers a ticket has killed."""
        return self._charges.count(ticket.seq)

    def failed(self, ticket: Ticket, report: FailureReport, book: Book) -> list[Delivery]:
        """The pool gives a ticket up."""
        return self._merged(ticket.seq, Failed(ticket, report, book.number), book)

    def taken(self) -> None:
        """The consumer has taken a delivery, which does not hold its slot yet."""
        self.stock.ready_count -= 1
        self.hunger.taken()
        if self.stock.is_short:
            self.homecoming.takes()

    def waiting_for_slots(self) -> list[Book]:
        """Whose workers are to see to slots that came free. They count as seen to."""
        if not self._redo and not self.stock.is_short:
            return []
        # Where more may be made, there is one for everybody. With none free, one worker asks all the same: it may be
        # that it is not worth waiting any longer for one to come home.
        is_bounded = not self._ledger.may_add(self.stock.largest_slot)
        most = max(1, self._ledger.held_by(Holder.LEDGER)) if is_bounded else None
        return self.hunger.waiting(most, self._redo[0].seq if self._redo else 0)

    @property
    def next_seq(self) -> int:
        """The number of the next new ticket; all before it were given out."""
        return self.tickets.next_seq

    @property
    def wants_slot(self) -> bool:
        """Whether a ticket waits for a slot, or to be made again."""
        return bool(self._redo)

    @property
    def has_room(self) -> bool:
        """Whether another ticket would find a slot."""
        return self._ledger.has_room(self.stock.largest_slot)

    def starves_for_slots(self) -> bool:
        """Whether a ticket wants a slot, none will come free by itself, and the consumer waits."""
        return bool(self._redo) and not (self.stock.ready_count or self.stock.ordered_count or self.has_room)

    def _ticket_for(self, book: Book, most: int, most_ahead: int) -> Ticket | None:
        """What the worker should make next. ``most``: of all batches, so many may be ready or ordered."""
        if self._redo:
            # Not to a worker that has yet to answer that the ticket was taken back from it: it could not say which.
            return None if self._redo[0].seq in book.outstanding else heapq.heappop(self._redo)
        if not self.tickets or self.stock.is_enough(book, most) or self.stock.is_left_to_others(book):
            return None
        if len(book.outstanding) + book.unmerged < most_ahead and not (self.stock.is_short and self._is_full(book)):
            return self.tickets.take()
        return None if book.outstanding else self._stuck_behind()

    def _is_full(self, book: Book) -> bool:
        return self.stock.is_full(book, self._ledger.held_by(Holder.BATCH))

    def _slot_for(self, book: Book) -> int | None:
        stock = self.stock
        if stock.is_short and self.homecoming.is_near(stock.ready_count, stock.ordered_count):
            return None
        return self._ledger.take(stock.largest_slot, book.known)

    def _stuck_behind(self) -> Ticket | None:
        """Takes the lowest order back that waits behind a slow one, for a worker that would else do nothing."""
        order = self._behind.take(self._is_valid)
        if order is None:
            return None
        # Its worker may be beginning it this moment. Then it stops before the next sample, as one does that comes to it
        # later; it answers "void", and the slot comes back. Should it be done already, what it made is thrown away.
        self._words[order.slot] = 0
        return Ticket(order.seq, order.epoch, order.step)

    def _ordered(self, ticket: Ticket, slot: int, book: Book) -> Order:
        order = Order(*ticket, slot, self.stock.largest_slot, self._shelf.shows(slot, book))
        book.outstanding[ticket.seq] = order
        self.stock.ordered_count += 1
        if book.is_slow:
            self._behind.ordered(order, book)
        self._words[slot] = ticket.seq
        if self._charges and (caution := self._charges.caution(ticket.seq, book.told_count)) is not None:
            book.cautions.append(caution)
            book.told_count = len(self._charges.left_out)
        return order

    def _answered(self, seq: int, book: Book) -> Order:
        order = book.outstanding.pop(seq)
        self.stock.ordered_count -= 1
        if book.hungry:
            self.hunger.changed(book)
        return order

    def _is_valid(self, order: Order) -> bool:
        return bool(self._words[order.slot] == order.seq)

    def _merged(self, seq: int, delivery: Delivery, book: Book) -> list[Delivery]:
        book.unmerged += 1
        ready = self._merge.add(seq, delivery)
        for one in ready:
            maker = self._books[one.worker]
            maker.unmerged -= 1
            if maker.hungry:
                self.hunger.changed(maker)
        self.stock.unmerged_count += 1 - len(ready)
        self.stock.ready_count += len(ready)
        return ready
