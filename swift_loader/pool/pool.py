"""One consumer's workers: hands out tickets, merges parcels in step order, closes.

    consumer's thread   take() <- ready queue <-+
    telecom threads     poll -> received() -> dispatch (under the lock) -> ready queue
                             -> feed()     -> dispatch (under the lock) -> orders sent (outside of it)

The lock guards the dispatch, the ledger and the slots; nothing is sent, mapped, started or waited for under it.
"""

from __future__ import annotations

import os
import sys
import threading
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from swift_loader.batch.layout import BatchSpec
from swift_loader.errors import (
    ConfigError,
    DataError,
    FailureReport,
    LayoutError,
    LoaderClosed,
    PoisonedTicket,
    WorkerDied,
    WorkerStartFailed,
)
from swift_loader.pool import messages
from swift_loader.pool.control import MAX_SLOTS, Control
from swift_loader.pool.dispatch import Delivery, Dispatch, Failed, Full, Ticket
from swift_loader.pool.failures import ending, error_of, start_error
from swift_loader.pool.lease import Lease, Returns
from swift_loader.pool.ledger import Holder, Ledger
from swift_loader.pool.line import Line
from swift_loader.pool.slot import Slot
from swift_loader.pool.telecom import Telecom
from swift_loader.pool.worker import Setup

if TYPE_CHECKING:
    from swift_loader.errors import SwiftLoaderError
    from swift_loader.plan.plan import Plan
    from swift_loader.pool.messages import Hello, Parcel
    from swift_loader.pool.process import Engine
    from swift_loader.pool.recipe import Recipe

    _Ready: TypeAlias = Delivery | BaseException

#: Waits are cut into pieces of this length, between which the pool looks whether anything can still come.
_LOOK_S = 0.25
#: A worker that dies this often before it has built its dataset is not started again.
_MAX_BIRTHS = 3
_JOIN_TIMEOUT_S = 5.0
_KNOWN_SPECS = 256


class Pool:
    """The workers of one consumer."""

    def __init__(self, recipe: Recipe, engine: Engine, memory_budget: int) -> None:
        config = recipe.config
        self.closing = False
        self.sample_count = 0
        self.skipped: list[tuple[int, str]] = []
        self._recipe = recipe
        self._config = config
        self._engine = engine
        self._max_batch_nbytes = config.max_batch_nbytes or memory_budget // 4
        self._lock = threading.Lock()
        self._leaving = threading.Lock()
        self._ledger = Ledger(memory_budget, MAX_SLOTS)
        self._slots: dict[int, Slot] = {}
        self._returns = Returns()
        self._ready: SimpleQueue[_Ready] = SimpleQueue()
        self._fatal: BaseException | None = None
        self._news: SimpleQueue[None] = SimpleQueue()
        """Told to `open`: a worker has greeted, a first delivery is ready, or something broke."""
        self._specs: dict[BatchSpec, BatchSpec] = {}
        self._dispatch: Dispatch | None = None
        self._control = Control.create(config.worker_count)
        name = f"swift-{{}}-c{recipe.consumer}w{{}}"
        self._lines = [Line(i, name.format("worker", i), self._control.cell(i)) for i in range(config.worker_count)]
        served = range(config.worker_count if config.multithread else 1)
        self._telecoms = [Telecom(name.format("telecom", i), self) for i in served]
        self._telecoms[0].listen_to(self._returns.bell)
        self._serving = 0

    # Starting ---------------------------------------------------------------------------------------------------

    def open(self) -> Plan:
        """Starts the workers; gives back the plan, which is known once the first has built its dataset.

        Raises:
            SwiftLoaderError: whatever kept them from starting, or, with ``validate``, from making the first batch.
        """
        self._engine.open()
        for telecom in self._telecoms:
            telecom.start()
            self._serving += 1
        first, *others = self._lines
        if not self._config.validate:
            self._take_on(others)
        self._take_on([first])
        self._await(lambda: self._dispatch is not None)
        dispatch = self._dispatch
        assert dispatch is not None
        if self._config.validate:
            if dispatch.has_work:
                self._await(lambda: not self._ready.empty())
                self._raise_first_failure()
            with self._lock:
                dispatch.open = True
            self._take_on(others)
            self._telecom_of(first).ring()
        return dispatch.plan

    def _take_on(self, lines: list[Line]) -> None:
        for line in lines:
            self._telecom_of(line).take_on(line)

    def _await(self, happened: Any) -> None:
        while not happened():
            if self._fatal is not None:
                raise self._fatal
            if self.closing:
                raise LoaderClosed("the loader was closed while it started")
            try:
                self._news.get(timeout=_LOOK_S)
            except Empty:
                continue

    def _raise_first_failure(self) -> None:
        first = self._ready.get()
        if isinstance(first, BaseException):
            raise first
        if isinstance(first, Failed):
            raise self.error_of(first)
        # Nobody else takes from the queue yet, and nobody else puts: no second ticket was handed out.
        self._ready.put(first)

    def _telecom_of(self, line: Line) -> Telecom:
        return self._telecoms[line.number % len(self._telecoms)]

    # The consumer's side ----------------------------------------------------------------------------------------

    def take(self) -> Delivery:
        """The next delivery, waited for.

        Raises:
            SwiftLoaderError: if none can come any more.
        """
        waited = 0
        while True:
            if self._fatal is not None:
                raise self._fatal
            try:
                delivery = self._ready.get(timeout=_LOOK_S) if waited else self._ready.get_nowait()
            except Empty:
                if self.closing:
                    raise LoaderClosed("the loader was closed while a batch was waited for") from None
                self._look_for_slots(last_time=waited > 1)
                waited += 1
                continue
            if not isinstance(delivery, Full | Failed):
                raise delivery
            self._taken(delivery)
            return delivery

    def hold(self, parcel: Parcel) -> Lease:
        """The hold that the batch made of ``parcel`` has on its slot."""
        return Lease(self._slots[parcel.slot], parcel.slot, self._returns)

    def restart(self, epoch: int, step: int) -> None:
        """What is taken next is this step; all that was made for others is void. Called by the consumer's thread."""
        dispatch = self._dispatch
        assert dispatch is not None
        with self._lock:
            void = dispatch.restart(epoch, step, self._lines)
            while not self._ready.empty():
                one = self._ready.get_nowait()
                if isinstance(one, Full | Failed):
                    void.append(one)
            dispatch.ready_count = 0
            for delivery in void:
                if isinstance(delivery, Full):
                    self._ledger.thrown_away(delivery.parcel.slot)
        for telecom in self._telecoms:
            telecom.ring()

    def error_of(self, failed: Failed) -> SwiftLoaderError:
        """What to raise for a ticket that could not be made."""
        return error_of(failed, self._recipe.consumer)

    def statistics(self) -> dict[str, float]:
        """Slots and workers, counted."""
        with self._lock:
            held = {f"slots_{holder.value}": self._ledger.held_by(holder) for holder in Holder}
            return {**held, "slot_bytes": self._ledger.nbytes, "samples_skipped": len(self.skipped)}

    def _taken(self, delivery: Delivery) -> None:
        dispatch = self._dispatch
        assert dispatch is not None
        with self._lock:
            dispatch.taken(delivery)
            self._bring_home()
            # Half a queue at a time: waking a telecom thread for every batch would cost more than most batches do.
            refill = dispatch.ready_count <= self._config.data_queue_size // 2
            rung = [line for line in self._lines if line.hungry] if refill else []
            self._ring(rung)

    def _look_for_slots(self, *, last_time: bool) -> None:
        with self._lock:
            if self._bring_home():
                self._ring([line for line in self._lines if line.hungry])
            elif last_time and self._dispatch is not None and self._dispatch.starves_for_slots(self._lines):
                held = self._ledger.held_by(Holder.BATCH)
                raise LayoutError(
                    f"no memory for the next batch: {held} batches that were handed out are still held, and with "
                    f"{self._ledger.nbytes:,} bytes they take the memory_budget of {self._ledger.budget:,}. Keep fewer "
                    "(clone what you need of them), or raise memory_budget"
                )

    def _bring_home(self) -> bool:
        """Counts the leases that came and went; under the lock. Says whether there were any."""
        came_home = self._returns.came_home
        any_came = bool(came_home)
        while came_home:
            self._ledger.changed(*came_home.popleft())
        return any_came

    def _ring(self, lines: list[Line]) -> None:
        for line in lines:
            line.hungry = False
            self._telecom_of(line).ring()

    # The telecom threads' side ----------------------------------------------------------------------------------

    def launch(self, line: Line) -> None:
        """Starts a worker for ``line``."""
        setup = Setup(
            worker=line.number,
            worker_count=self._config.worker_count,
            max_batch_nbytes=self._max_batch_nbytes,
            path=_absolute_path(),
            folder=os.getcwd(),
            has_payload=self._engine.sends_payload,
        )
        try:
            line.connect(*self._engine.launch(line.name, setup, self._control.fd))
        except WorkerStartFailed as error:
            self.broke(WorkerStartFailed(f"{line.name} could not be started: {error}"))

    def feed(self, line: Line) -> None:
        """Sends ``line`` the orders that it should have."""
        if not line.greeted or self._dispatch is None or self.closing:
            return
        with self._lock:
            self._bring_home()
            orders = self._dispatch.orders_for(line, self._lines)
            if line.hungry and self._dispatch.wants_slot:
                # From now on whoever drops a lease rings; one that was dropped just before is seen here.
                self._returns.wanted = True
                if self._bring_home():
                    orders += self._dispatch.orders_for(line, self._lines)
            else:
                self._returns.wanted = False
            fds = [self._slots[order.slot].fd for order in orders if order.brings_slot]
        if orders:
            # The slots in ``fds`` are this worker's now: nobody replaces them before it answers.
            line.send(messages.write_orders(orders), fds)

    def received(self, line: Line, datagram: bytes, fds: list[int], now_ns: int) -> None:
        """A worker has said something."""
        kind = datagram[0]
        if kind == messages.PARCEL:
            self._parcel(line, messages.read_parcel(datagram), fds, now_ns)
        elif kind == messages.VOID:
            self._answered_empty(line, messages.read_void(datagram), None)
        elif kind == messages.HELLO:
            self._hello(line, messages.read_pickled(datagram))
        else:
            failure: messages.Failure = messages.read_pickled(datagram)
            if failure.seq:
                self._answered_empty(line, failure.seq, failure.report)
            else:
                self.broke(start_error(line.name, failure.report))

    def died(self, line: Line) -> bool:
        """A worker is gone without being asked; says whether another is to be started for its line."""
        assert line.process is not None
        status = line.process.exit_status()
        guilty, stage = line.cell.index, line.cell.stage
        how = f"{line.name} (pid {line.process.pid}) {ending(status)} while it {stage}"
        how += "" if guilty is None else f" sample {guilty}"
        greeted = line.greeted
        line.disconnect()
        if self.closing or self._fatal is not None:
            return False
        if not greeted and line.births >= _MAX_BIRTHS:
            self.broke(WorkerDied(f"{how}; it was started {line.births} times and never got further"))
            return False
        with self._lock:
            poison = None if self._dispatch is None else self._dispatch.died(line)
            if poison is not None:
                self._give_up(poison, line, how, guilty)
            self._ring([other for other in self._lines if other.hungry])
        return True

    def broke(self, error: BaseException) -> None:
        """Nothing more will come: the consumer is told at its next call."""
        if self._fatal is None:
            self._fatal = error
        self._ready.put(error)
        self._news.put(None)

    def telecom_left(self) -> None:
        """A telecom thread has ended; the last one puts the lights out."""
        with self._leaving:
            self._serving -= 1
            if self._serving == 0:
                self._put_out()

    def _hello(self, line: Line, hello: Hello) -> None:
        with self._lock:
            if self._dispatch is None:
                self.sample_count = hello.sample_count
                plan = self._recipe.plan(hello.sample_count)
                words = self._control.slot_words
                self._dispatch = Dispatch(self._recipe, plan, self._ledger, self._slots, words)
                self._dispatch.open = not self._config.validate
        if hello.sample_count != self.sample_count:
            self.broke(
                ConfigError(
                    f"the dataset's len() is {hello.sample_count} in {line.name} and {self.sample_count} in the first "
                    "worker: it must be the same wherever the dataset is built"
                )
            )
            return
        line.greeted = True
        line.births = 0
        self._news.put(None)

    def _parcel(self, line: Line, parcel: Parcel, fds: list[int], now_ns: int) -> None:
        attached = parcel.attachment
        new_slot = Slot.map_to_read(fds[0]) if attached is not None and attached.new_slot else None
        if attached is not None and attached.skipped and (report := self._too_many(attached.skipped)) is not None:
            parcel.attachment = None
            self._answered_empty(line, parcel.seq, report)
            return
        with self._lock:
            assert self._dispatch is not None
            if new_slot is not None:
                self._replace(parcel.slot, new_slot, line)
            if attached is not None and attached.spec is not None:
                line.specs[parcel.spec_id] = self._interned(attached.spec)
            parcel.spec = line.specs[parcel.spec_id]
            slot_nbytes = self._slots[parcel.slot].nbytes
            self._deliver(self._dispatch.filled(line, parcel, slot_nbytes, now_ns), line)

    def _answered_empty(self, line: Line, seq: int, report: FailureReport | None) -> None:
        with self._lock:
            assert self._dispatch is not None
            self._deliver(self._dispatch.answered_empty(line, seq, report), line)
            if self._dispatch.wants_slot:
                self._ring([other for other in self._lines if other.hungry])

    def _deliver(self, deliveries: list[Delivery], line: Line) -> None:
        """Under the lock: hands out what was merged, and rings those whose parcels no longer wait."""
        for delivery in deliveries:
            self._ready.put(delivery)
            if delivery.line is not line and delivery.line.hungry:
                self._ring([delivery.line])
        if self._dispatch is not None and not self._dispatch.open:
            self._news.put(None)

    def _replace(self, number: int, slot: Slot, line: Line) -> None:
        if (old := self._slots.get(number)) is not None:
            old.close()
        self._slots[number] = slot
        for other in self._lines:
            if other is not line:
                other.known.discard(number)

    def _interned(self, spec: BatchSpec) -> BatchSpec:
        if len(self._specs) >= _KNOWN_SPECS:
            self._specs.clear()
        return self._specs.setdefault(spec, spec)

    def _too_many(self, skipped: list[tuple[int, str]]) -> FailureReport | None:
        self.skipped += skipped
        if len(self.skipped) <= self._config.max_skipped:
            return None
        last = "\n  ".join(reason for _, reason in self.skipped[-3:])
        text = f"{len(self.skipped)} samples were left out, more than max_skipped={self._config.max_skipped}; the last:\n  {last}"
        return FailureReport.of(DataError(text), "fetch", skipped[-1][0])

    def _give_up(self, ticket: Ticket, line: Line, how: str, guilty: int | None) -> None:
        assert self._dispatch is not None
        error = PoisonedTicket(
            f"this batch has killed {self._config.max_attempts} workers; the last: {how}. Look at that sample alone, "
            "with worker_per_consumer=0"
        )
        report = FailureReport.of(error, "make the batch", guilty)
        self._deliver(self._dispatch.failed(ticket, report, line), line)

    # Closing ----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Has everything end without waiting for it; takes no lock."""
        self.closing = True
        for telecom in self._telecoms:
            telecom.ring()

    def close(self) -> None:
        """Ends the workers and the threads; may be called twice."""
        already = self.closing
        self.abandon()
        if self._serving == 0 and not already:
            self._put_out()
            return
        deadline = monotonic() + _JOIN_TIMEOUT_S
        for telecom in self._telecoms:
            telecom.join(max(0.0, deadline - monotonic()))

    def _put_out(self) -> None:
        self._returns.wanted = False
        self._engine.close()
        self._control.close()
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()


def _absolute_path() -> list[str]:
    return [os.path.abspath(folder) for folder in sys.path]
