"""Where the consumer's thread and the telecom threads meet: orders go out, parcels come in, deliveries are taken.

    consumer's thread   take() <------- ready queue <-------+
    telecom threads     came(), empty() -> dispatch -> ready queue
                        orders_for()    -> dispatch -> orders

One lock guards the dispatch, the ledger and the slots; nothing is sent, mapped, started or waited for under it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from swift_loader.batch.layout import BatchSpec
from swift_loader.errors import FailureReport, LoaderClosed, NoRoom
from swift_loader.host.memory import LEFT_NBYTES, free_nbytes
from swift_loader.pool.dispatch import Dispatch
from swift_loader.pool.lease import Copies, Lease, Returns
from swift_loader.pool.ledger import Holder, Ledger
from swift_loader.pool.tickets import Delivery, Full
from swift_loader.wire import messages
from swift_loader.wire.slot import SMALL_NBYTES, Slot

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan
    from swift_loader.plan.position import Position
    from swift_loader.pool.failures import Death
    from swift_loader.pool.line import Line
    from swift_loader.wire.messages import Parcel
    from swift_loader.wire.recipe import Recipe

    _Ready: TypeAlias = Delivery | BaseException

_KNOWN_SPECS = 256
#: One that is handed out, one that the user still holds.
_SLOTS_BESIDE_WORKERS = 2


class Exchange:
    """The shared state of one pool."""

    def __init__(
        self,
        recipe: Recipe,
        memory_budget: int,
        most_slots: int,
        lines: Sequence[Line],
        slot_words: memoryview,
    ) -> None:
        self.returns = Returns()
        self.first: Delivery | None = None
        """The very first delivery."""
        self._recipe = recipe
        self._config = recipe.config
        self._lines = lines
        self._slot_words = slot_words
        self._lock = threading.RLock()  # reentrant for `is_entered`, and for a signal handler that looks at statistics
        self._memory_budget = memory_budget
        self._ledger = Ledger(memory_budget, most_slots)
        # With more in use, batches are copied out: a user who keeps many would else take all descriptors.
        self._most_busy = most_slots // 2
        self._slots: dict[int, Slot] = {}
        self._specs: dict[BatchSpec, BatchSpec] = {}
        self._ready: SimpleQueue[_Ready] = SimpleQueue()
        self._dispatch: Dispatch | None = None
        self._first_valid = 0
        """Deliveries with a lower number are void."""

    @property
    def plan(self) -> Plan | None:
        """Known once a dataset was built somewhere."""
        return None if self._dispatch is None else self._dispatch.plan

    def set_up(self, plan: Plan) -> None:
        """Tickets are handed out from now on."""
        with self._lock:
            self._dispatch = Dispatch(self._recipe, plan, self._ledger, self._slots, self._slot_words, self._lines)

    # The consumer's side ----------------------------------------------------------------------------------------

    def take(self, timeout_s: float) -> _Ready | None:
        """The next delivery, or an error that ends all; None if nothing came in time."""
        try:
            delivery = self._awaited(timeout_s) if timeout_s else self._ready.get_nowait()
        except Empty:
            return None
        if isinstance(delivery, BaseException):
            return delivery
        with self._lock:
            if delivery.ticket.seq < self._first_valid:
                # Another thread has called restart() between these lines, and did not find this one any more.
                if isinstance(delivery, Full):
                    self._ledger.thrown_away(delivery.parcel.slot)
                return None
            self._bring_home()
            if isinstance(delivery, Full) and delivery.parcel.slot not in self._slots:
                # Closed since it was ready: by another thread, or by a signal handler in this one.
                return LoaderClosed("the loader was closed while a batch was handed out")
            self._known.taken()
            if isinstance(delivery, Full):
                self._hold(delivery)
            for line in self._known.to_feed():
                self._ring(line)
        return delivery

    def _awaited(self, timeout_s: float) -> _Ready:
        if self._dispatch is None:
            return self._ready.get(timeout=timeout_s)
        homecoming = self._dispatch.homecoming
        homecoming.is_awaited = True
        try:
            if self._dispatch.is_short:
                self._begins_to_wait(self._dispatch)
            return self._ready.get(timeout=timeout_s)
        finally:
            homecoming.is_awaited = False

    def _begins_to_wait(self, dispatch: Dispatch) -> None:
        with self._lock:
            if dispatch.wants_slot:  # a worker has waited for a batch to be dropped: that has happened now, or will not
                self._ring_the_hungry()

    @property
    def ready_count(self) -> int:
        """Merged deliveries that the consumer has not taken."""
        return 0 if self._dispatch is None else self._dispatch.ready_count

    @property
    def ready_most(self) -> int:
        """How many of them there should be."""
        return self._config.data_queue_size if self._dispatch is None else self._dispatch.ready_most

    def is_entered(self) -> bool:
        """Whether this very thread is inside: then it was interrupted there, by a signal handler that asks."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return] # as threading.Condition asks it

    def look_for_slots(self) -> NoRoom | None:
        """Brings home what was dropped; the error to raise if the consumer holds all memory there is."""
        free = free_nbytes() if self._is_short else None  # there may be more by now: others have let go of theirs
        with self._lock:
            if free is not None:
                self._fit_budget(free)
            if self._bring_home() or (free is not None and self._known.has_room):
                self._ring_the_hungry()
                return None
            if self._dispatch is None or not self._dispatch.starves_for_slots():
                return None
            return NoRoom.of(
                f"no memory for the next batch: {self._ledger.held_by(Holder.BATCH)} batches that were handed out are "
                f"still held, and with {self._ledger.nbytes:,} bytes they take the memory_budget of "
                f"{self._ledger.budget:,}. Keep fewer (clone what you need of them), or raise memory_budget",
                self._known.largest_slot,
                self._ledger.budget,
            )

    def restart(self, at: Position) -> int:
        """What is taken next is what follows from there; all that was made for others is void.

        Gives back the number of the next ticket: all that have a lower one are void, wherever they are.
        """
        with self._lock:
            void = [*self._known.restart(at), *self._waiting_deliveries()]
            self._known.ready_count = 0
            self._first_valid = self._known.next_seq
            for delivery in void:
                if isinstance(delivery, Full):
                    self._ledger.thrown_away(delivery.parcel.slot)
            return self._first_valid

    def told_few_slots(self) -> str | None:
        """What to tell the user, now that a first batch has come, if memory is too short to keep all workers busy."""
        size, workers = 0 if self._dispatch is None else self._dispatch.largest_slot, len(self._lines)
        fitting = self._ledger.budget // size if size else workers + _SLOTS_BESIDE_WORKERS
        if fitting >= workers + _SLOTS_BESIDE_WORKERS:
            return None
        return (
            f"memory for {fitting} batches of {size:,} bytes is all that there is (memory_budget is "
            f"{self._ledger.budget:,}), and {workers} workers want {workers + _SLOTS_BESIDE_WORKERS}: some will wait. "
            "Take fewer workers or a smaller batch_size, or give the job more memory"
        )

    def statistics(self) -> dict[str, float]:
        """Slots, counted, and the workers that have made a batch."""
        with self._lock:
            self._bring_home()
            held = {f"slots_{holder.value}": self._ledger.held_by(holder) for holder in Holder}
            warm = sum(line.has_made for line in self._lines)
            sizes = {"slot_bytes": self._ledger.nbytes, "slot_bytes_most": self._ledger.budget}
            return {**held, **sizes, "workers_warm": warm}

    # The telecom threads' side ----------------------------------------------------------------------------------

    def orders_for(self, line: Line) -> tuple[bytes, list[int]] | None:
        """What to send to ``line`` now, if anything: orders, and the descriptors of slots that it has not seen."""
        if self._dispatch is None:
            return None
        with self._lock:
            self._bring_home()
            orders = self._dispatch.orders_for(line)
            self.returns.wanted = self._dispatch.wants_slot
            # From now on whoever drops a lease rings; one that was dropped just before is seen here.
            if self.returns.wanted and self._bring_home():
                orders += self._dispatch.orders_for(line)
            # The slots are this worker's from now on: nobody replaces one before it answers.
            fds = [self._slots[order.slot].fd for order in orders if order.brings_slot]
        return (messages.write_orders(orders), fds) if orders else None

    def came(self, line: Line, parcels: list[Parcel], fds: list[int], now_ns: int) -> None:
        """Parcels have come; only one that comes alone brings a slot."""
        new_slot = Slot.map(fds[0]) if fds else None
        free = free_nbytes() if new_slot is not None and new_slot.nbytes >= SMALL_NBYTES else None
        # Kept until the lock is free again: unmapping memory, and unlocking it for a device, takes milliseconds.
        replaced: Slot | None = None
        with self._lock:
            if new_slot is not None:
                replaced = self._replace(parcels[0].slot, new_slot, line)
            if free is not None:
                self._fit_budget(free)
            for parcel in parcels:
                self._deliver(self._filled(line, parcel, now_ns), line)
        del replaced

    def empty(self, line: Line, seq: int, report: FailureReport | None) -> None:
        """A worker answered without a batch: the order had been taken back, or failed with a report."""
        with self._lock:
            self._deliver(self._known.answered_empty(line, seq, report), line)
            if self._known.wants_slot:
                self._ring_the_hungry()

    def gone(self, line: Line, death: Death) -> None:
        """A worker is gone: its tickets are made again, but for one that has killed too many."""
        line.deaths, line.last_death = line.deaths + 1, death.how
        if self._dispatch is None:
            return
        lost: list[Slot | None] = []  # unmapped when the lock is free again
        with self._lock:
            if death.lingers:
                lost += [self._slots.pop(order.slot, None) for order in line.outstanding.values()]
            poison = self._dispatch.died(line, death)
            if poison is not None:
                report = death.poisoned(self._dispatch.death_count(poison))
                self._deliver(self._dispatch.failed(poison, report, line), line)
            self._ring_the_hungry()
        for slot in lost:
            if slot is not None:
                slot.close()

    def slots_came_home(self) -> None:
        """Slots were dropped for which workers wait."""
        with self._lock:
            if self._bring_home():
                self._ring_the_hungry()

    def others_serve(self, line: Line) -> bool:
        """Whether there is a worker that takes orders, beside that of ``line``."""
        return any(other.greeted for other in self._lines if other is not line)

    def fail(self, error: BaseException) -> None:
        """The consumer is told at its next call."""
        self._ready.put(error)

    def close(self) -> None:
        """Lets go of the slots; batches that are still held keep their memory."""
        self.returns.wanted = False
        with self._lock:
            slots = list(self._slots.values())
            self._slots.clear()
        for slot in slots:
            slot.close()

    # Under the lock ---------------------------------------------------------------------------------------------

    @property
    def _known(self) -> Dispatch:
        assert self._dispatch is not None
        return self._dispatch

    @property
    def _is_short(self) -> bool:
        """Whether a ticket waits for a slot, and there were more if memory had not been short."""
        return self._dispatch is not None and self._dispatch.wants_slot and self._ledger.budget < self._memory_budget

    def _fit_budget(self, free: int) -> None:
        """Has no more slots made than there is memory for: workers and others have taken their own since the start."""
        made = sum(slot.nbytes for slot in self._slots.values())
        self._ledger.budget = min(self._memory_budget, made + max(0, free - LEFT_NBYTES))

    def _filled(self, line: Line, parcel: Parcel, now_ns: int) -> list[Delivery]:
        attached = parcel.attachment
        if attached is not None and attached.spec is not None:
            line.specs[parcel.spec_id] = self._interned(attached.spec)
        parcel.spec = line.specs[parcel.spec_id]
        return self._known.filled(line, parcel, self._slots[parcel.slot].nbytes, now_ns)

    def _hold(self, delivery: Full) -> None:
        """Gives the delivery its hold on its slot."""
        number = delivery.parcel.slot
        self._ledger.landing(number)
        kind = Lease if self._ledger.busy_count < self._most_busy else Copies
        delivery.hold = kind(self._slots[number], number, self.returns)

    def _waiting_deliveries(self) -> list[Delivery]:
        """Takes what is ready; errors that end all stay errors, wherever they are asked for next."""
        found: list[Delivery] = []
        while True:
            try:
                one = self._ready.get_nowait()
            except Empty:
                return found
            if not isinstance(one, BaseException):
                found.append(one)

    def _bring_home(self) -> bool:
        """Counts the leases that came and went; says whether there were any."""
        came_home = self.returns.came_home
        any_came = bool(came_home)
        while came_home:
            self._ledger.changed(*came_home.popleft())
        return any_came

    def _ring_the_hungry(self) -> None:
        for line in self._lines:
            if line.hungry:
                self._ring(line)

    def _ring(self, line: Line) -> None:
        line.hungry = False
        line.bell.ring()

    def _deliver(self, deliveries: list[Delivery], line: Line) -> None:
        """Hands out what was merged, and rings those whose parcels no longer wait."""
        if self.first is None and deliveries:
            self.first = deliveries[0]
        for delivery in deliveries:
            self._ready.put(delivery)
            maker = self._lines[delivery.worker]
            if maker is not line and maker.hungry:
                self._ring(maker)

    def _replace(self, number: int, slot: Slot, line: Line) -> Slot | None:
        """Gives back the slot that had the number before."""
        if (old := self._slots.get(number)) is not None:
            old.close()
        self._slots[number] = slot
        for other in self._lines:
            if other is not line:
                other.known.discard(number)
        return old

    def _interned(self, spec: BatchSpec) -> BatchSpec:
        if len(self._specs) >= _KNOWN_SPECS:
            self._specs.clear()
        return self._specs.setdefault(spec, spec)
