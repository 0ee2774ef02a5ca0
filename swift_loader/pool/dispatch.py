"""Which worker gets which ticket, in which slot; and what becomes of a parcel. Decides; acts on nothing.

Called under the pool's lock, from telecom threads and the consumer's. Tickets are numbered through all epochs (`seq`);
an order is valid while its slot's word holds its number, and that word is the only place where this is written down.

What holds new tickets back, apart from the want of a free slot:
- so many are merged or on their way that workers stay busy until `data_queue_size` batches wait for the consumer, or
  fewer where that was not given and batches are large;
- a worker has `max_buffer_size` parcels waiting to be merged, on top of the orders it has.
Neither holds back the lowest unfinished ticket: it is ordered before all that could fill these queues, and a ticket
that must be made again goes before any new one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from swift_loader.errors import FailureReport
from swift_loader.plan.position import Position
from swift_loader.pool.homecoming import Homecoming
from swift_loader.pool.ledger import Holder, Ledger
from swift_loader.pool.merge import AsTheyCome, InOrder, Merge
from swift_loader.pool.poison import Charges
from swift_loader.pool.tickets import Delivery, Failed, Full, Ticket, Tickets
from swift_loader.wire.messages import Order, Parcel

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan
    from swift_loader.pool.failures import Death
    from swift_loader.pool.line import Line
    from swift_loader.wire.recipe import Recipe


#: Orders that one worker is given at a time: more would hand it a whole run of steps, which the others' must wait for.
_BURST = 12
#: One worker runs ahead by no more memory than this, or two batches: each new slot costs what several batches cost, and
#: while one worker makes a slot, the others would run ahead and make more of them.
_AHEAD_NBYTES = 256 << 20
#: However large batches are, so many are kept ready: one is handed out while another one waits.
_LEAST_READY = 2
#: The consumer works with one while others are ready.
_IN_USE = 1
#: Where batches take longer than this, and are large, no order waits in a channel, and a single batch is kept ready.
_UNHURRIED_NS = 80_000_000
#: With a good stock, the consumer sees to new orders once it has taken what a worker makes in so long: to wake a thread
#: costs more than most quick batches do.
_WORTH_ORDERING_NS = 1_000_000


class Dispatch:
    """The tickets of one consumer."""

    def __init__(
        self,
        recipe: Recipe,
        plan: Plan,
        ledger: Ledger,
        slots: Mapping[int, object],
        slot_words: memoryview,
        lines: Sequence[Line],
    ) -> None:
        self._config = recipe.config
        self.plan = plan
        self._ledger = ledger
        self._slots = slots
        self._slot_words = slot_words
        self._lines = lines
        self._merge: Merge[Delivery] = InOrder() if recipe.config.in_order else AsTheyCome()
        self._redo: list[Ticket] = []
        self._charges = Charges(recipe.config)
        self._tickets = Tickets(plan, recipe.consumer, self._merge.epoch)
        self.ready_count = 0
        """Merged deliveries that the consumer has not taken."""
        self.ordered_count = 0
        """Orders that were not answered, of all workers."""
        self.largest_slot = 0
        self._is_slow = self._is_unhurried = False
        """Batches take long, or very long, as far as the last one tells."""
        self.homecoming = Homecoming(ledger)
        self._taken = 0
        """Deliveries since the consumer last saw to new orders ..."""
        self._batch_ns = 0.0
        """... and what the slowest worker took for a batch, then or since."""
        self.ready_most = 0
        """How many merged batches are to wait for the consumer, beside those that workers have in hand."""
        self.is_short = False
        """Batches are too large for as many as usual to be ready."""
        self._fit_stock()
        self._tickets.turn_to(Position())

    def restart(self, at: Position) -> list[Delivery]:
        """What is wanted next is another step than the next one; gives back what was merged or waiting and is void."""
        for line in self._lines:
            line.unmerged = 0
            for order in line.outstanding.values():
                self._slot_words[order.slot] = 0
        self._redo.clear()
        self._charges.clear()
        void = self._merge.restart(self._tickets.next_seq)
        self._tickets.turn_to(at)
        return void

    def orders_for(self, line: Line) -> list[Order]:
        """The orders that ``line`` should be sent now; marks it hungry if it could take more."""
        orders: list[Order] = []
        depth = self._depth(line)
        most, most_ahead = self._most_on_their_way(depth), self._most_ahead(depth)
        while len(line.outstanding) < depth and len(orders) < _BURST:
            ticket = self._ticket_for(line, most, most_ahead)
            slot = None if ticket is None else self._slot_for(line)
            if ticket is None or slot is None:
                if ticket is not None:
                    heapq.heappush(self._redo, ticket)
                    line.slotless_ns = line.slotless_ns or perf_counter_ns()
                line.hungry = True
                return orders
            orders.append(self._ordered(ticket, slot, line))
        line.hungry = False
        return orders

    def filled(self, line: Line, parcel: Parcel, slot_nbytes: int, now_ns: int) -> list[Delivery]:
        """A parcel has come; gives back what may be delivered now."""
        order = self._answered(parcel.seq, line)
        line.has_told = True
        line.took(parcel.cost.made_ns)
        self._batch_ns = max(self._batch_ns, line.batch_ns)
        is_unhurried = line.batch_ns > _UNHURRIED_NS
        if line.is_slow != self._is_slow or is_unhurried != self._is_unhurried:
            self._is_slow, self._is_unhurried = line.is_slow, is_unhurried
            self._fit_stock()
        self._ledger.filled(order.slot, slot_nbytes)
        if slot_nbytes > self.largest_slot:
            self.largest_slot = slot_nbytes
            self._ledger.expect(slot_nbytes)
            self._fit_stock()
        if not self._is_valid(order):
            self._ledger.thrown_away(order.slot)
            return []
        self._charges.dropped(order.seq)
        ticket = Ticket(order.seq, order.epoch, order.step)
        waited_ns = line.slot_waits.pop(order.seq, 0) if line.slot_waits else 0
        return self._merged(order.seq, Full(ticket, parcel, line.number, now_ns, waited_ns), line)

    def answered_empty(self, line: Line, seq: int, report: FailureReport | None) -> list[Delivery]:
        """The worker answered without a batch: it failed, or the order had been taken back (no report)."""
        order = self._answered(seq, line)
        line.slot_waits.pop(seq, None)
        valid = self._is_valid(order)
        self._ledger.given_back(order.slot)
        line.has_told = line.has_told or report is not None
        if not valid or report is None:
            return []
        self._charges.dropped(seq)
        ticket = Ticket(order.seq, order.epoch, order.step)
        return self._merged(order.seq, Failed(ticket, report, line.number), line)

    def died(self, line: Line, death: Death) -> Ticket | None:
        """The worker is gone; its tickets are to be made again. Gives back the one that has killed too many."""
        guilty = None if death.is_expected else line.in_hand()
        poison = None
        for order in line.outstanding.values():
            if self._is_valid(order):
                ticket = Ticket(order.seq, order.epoch, order.step)
                if order is guilty and self._charges.is_given_up(order.seq, death):
                    poison = ticket
                else:
                    heapq.heappush(self._redo, ticket)
            self._slot_words[order.slot] = 0
            if death.lingers:
                self._ledger.lost(order.slot)
            else:
                self._ledger.given_back(order.slot)
        self.ordered_count -= len(line.outstanding)
        line.outstanding.clear()
        return poison

    def death_count(self, ticket: Ticket) -> int:
        """How many workers a ticket has killed."""
        return self._charges.count(ticket.seq)

    def failed(self, ticket: Ticket, report: FailureReport, line: Line) -> list[Delivery]:
        """The pool gives a ticket up."""
        return self._merged(ticket.seq, Failed(ticket, report, line.number), line)

    def taken(self) -> None:
        """The consumer has taken a delivery."""
        self.ready_count -= 1
        self._taken += 1
        if self.is_short:
            self.homecoming.takes()

    def to_feed(self) -> list[Line]:
        """Who should be given orders in place of what was taken: those that have the fewest.

        With a good stock one worker begins when half of it is gone, and a second one where that does not keep up: all
        of them at once would each get a run of batches, and finish the first ones later than few would.
        """
        is_well_stocked = self.ready_count > self.ready_most // 2
        if is_well_stocked and self._taken * self._batch_ns < _WORTH_ORDERING_NS:
            return []
        self._taken, self._batch_ns = 0, max(line.batch_ns for line in self._lines)
        hungry = [line for line in self._lines if line.hungry and line.greeted]
        if not hungry:
            return []
        hungry.sort(key=lambda line: len(line.outstanding))
        first = hungry[0]
        most = self._most_on_their_way(self._depth(first))
        missing = most - self.ready_count - self.ordered_count
        if missing < most // 2 and (is_well_stocked or first.outstanding):
            return []
        fed: list[Line] = []
        for line in hungry:
            depth, count = self._depth(line), len(line.outstanding)
            if count + line.unmerged < self._most_ahead(depth):
                fed.append(line)
                missing -= depth - count
            if missing <= 0 or (fed and self.ready_count):
                break
        return fed

    @property
    def next_seq(self) -> int:
        """The number of the next new ticket; all before it were given out."""
        return self._tickets.next_seq

    @property
    def wants_slot(self) -> bool:
        """Whether a ticket waits for a slot, or to be made again."""
        return bool(self._redo)

    @property
    def has_room(self) -> bool:
        """Whether another ticket would find a slot."""
        return self._ledger.has_room(self.largest_slot)

    def starves_for_slots(self) -> bool:
        """Whether a ticket wants a slot, none will come free by itself, and the consumer waits."""
        if not self._redo or self.ready_count or self.has_room:
            return False
        return not any(line.outstanding for line in self._lines)

    def _fit_stock(self) -> None:
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

    def _ticket_for(self, line: Line, most: int, most_ahead: int) -> Ticket | None:
        """What the line's worker should make next. ``most``: of all batches, so many may be ready or ordered."""
        if self._redo:
            # Not to a worker that has yet to answer that the ticket was taken back from it: it could not say which.
            return None if self._redo[0].seq in line.outstanding else heapq.heappop(self._redo)
        if not self._tickets or (self.ready_count + self.ordered_count >= most and self._has_enough(line)):
            return None
        if len(line.outstanding) + line.unmerged < most_ahead and not (self.is_short and self._is_full(line)):
            return self._tickets.take()
        return None if line.outstanding else self._stuck_behind(line)

    def _slot_for(self, line: Line) -> int | None:
        if self.is_short and self.homecoming.is_near(self.ready_count, self.ordered_count):
            return None
        return self._ledger.take(self.largest_slot, line.known)

    def _depth(self, line: Line) -> int:
        """How many orders the line's worker should have: the one that it is at, and those in its channel."""
        if self._is_unhurried and self.is_short:  # to come back for an order costs them nothing
            return 1
        return 1 + line.queue_depth(self._config.message_queue_size, self.largest_slot)

    def _has_enough(self, line: Line) -> bool:
        # Where others have more orders than they should, since they were quick once, one that has none gets its own.
        return bool(line.outstanding) or self.ready_count >= self.ready_most

    def _is_full(self, line: Line) -> bool:
        """Whether all batches together take as much memory as they may, those that wait for an earlier one too."""
        count = self.ready_count + self.ordered_count + sum(line.unmerged for line in self._lines)
        # One is in use. While the next one is taken there are two of them for a moment: not worth a slot of its own.
        if line.outstanding and self._ledger.held_by(Holder.BATCH) > 1:
            count += 1
        most = self.ready_most + len(self._lines)
        return count >= (most if self._is_unhurried else max(most, 2 * len(self._lines)))

    def _most_on_their_way(self, depth: int) -> int:
        """Channels are kept filled: ten batches of 50 us are gone before an idle worker has woken up."""
        workers = len(self._lines)
        if self.is_short:
            return self.ready_most + workers
        return max(self.ready_most + workers * max(1, depth - 1), workers * depth)

    def _most_ahead(self, depth: int) -> int:
        """How many batches of one worker may be ordered or wait to be merged."""
        most = depth + self._config.max_buffer_size
        return min(most, max(2, _AHEAD_NBYTES // self.largest_slot)) if self.largest_slot else most

    def _stuck_behind(self, line: Line) -> Ticket | None:
        """Takes the lowest order back that waits behind a slow one, for a worker that would else do nothing."""
        waiting = [
            (order, other)
            for other in self._lines
            if other is not line and other.is_slow
            for order in list(other.outstanding.values())[1:]
            if order.seq != other.cell.seq and self._is_valid(order)
        ]
        if not waiting:
            return None
        order, _ = min(waiting, key=lambda pair: pair[0].seq)
        self._slot_words[order.slot] = 0  # the worker answers "void" when it gets there, and the slot comes back
        return Ticket(order.seq, order.epoch, order.step)

    def _ordered(self, ticket: Ticket, slot: int, line: Line) -> Order:
        order = Order(*ticket, slot, self.largest_slot, slot in self._slots and slot not in line.known)
        line.known.add(slot)
        line.outstanding[ticket.seq] = order
        self.ordered_count += 1
        if line.slotless_ns:
            line.slot_waits[ticket.seq] = perf_counter_ns() - line.slotless_ns
            line.slotless_ns = 0
        self._slot_words[slot] = ticket.seq
        if self._charges and (caution := self._charges.caution(ticket.seq, line.told_count)) is not None:
            line.cautions.append(caution)
            line.told_count = len(self._charges.left_out)
        return order

    def _answered(self, seq: int, line: Line) -> Order:
        order = line.outstanding.pop(seq)
        self.ordered_count -= 1
        return order

    def _is_valid(self, order: Order) -> bool:
        return bool(self._slot_words[order.slot] == order.seq)

    def _merged(self, seq: int, delivery: Delivery, line: Line) -> list[Delivery]:
        line.unmerged += 1
        ready = self._merge.add(seq, delivery)
        for one in ready:
            self._lines[one.worker].unmerged -= 1
        self.ready_count += len(ready)
        return ready
