"""One consumer's workers: started, listened to, replaced when they die, and ended.

What they are told and what becomes of it is the exchange's business; when to read and write, the telecom threads'.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

from swift_loader.errors import (
    ConfigError,
    FailureReport,
    LoaderClosed,
    PoisonedTicket,
    WorkerDied,
    WorkerStartFailed,
)
from swift_loader.pool import messages
from swift_loader.pool.control import Control
from swift_loader.pool.dispatch import Delivery, Failed
from swift_loader.pool.exchange import Exchange
from swift_loader.pool.failures import ending, error_of, start_error
from swift_loader.pool.line import Line
from swift_loader.pool.policy import Event, Instruction
from swift_loader.pool.stacks import Stacks
from swift_loader.pool.telecom import Telecom
from swift_loader.pool.worker import Setup

if TYPE_CHECKING:
    from swift_loader.errors import SwiftLoaderError
    from swift_loader.plan.plan import Plan
    from swift_loader.pool.lease import Lease
    from swift_loader.pool.messages import Hello, Parcel
    from swift_loader.pool.process import Engine
    from swift_loader.pool.recipe import Recipe
    from swift_loader.position import Position

#: Waits are cut into pieces of this length, between which the pool looks whether anything can still come.
_LOOK_S = 0.25
_JOIN_TIMEOUT_S = 5.0
_CLOSED_MEANWHILE = "the loader was closed while a batch was waited for"


class Pool:
    """The workers of one consumer."""

    def __init__(self, recipe: Recipe, engine: Engine, memory_budget: int) -> None:
        config = recipe.config
        self.closing = False
        self.sample_count = 0
        self.before_waiting: Callable[[], None] | None = None
        """Called by `take` before it waits: whoever copies from slots is to let go of those that it is done with."""
        self._recipe = recipe
        self._config = config
        self._engine = engine
        self._max_batch_nbytes = config.max_batch_nbytes or memory_budget // 4
        self._control = Control.create(config.worker_count)
        name = f"swift-{{}}-c{recipe.consumer}w{{}}"
        self._lines = [self._line(i, name.format("worker", i)) for i in range(config.worker_count)]
        served = range(config.worker_count if config.multithread else 1)
        self._telecoms = [Telecom(name.format("telecom", i), self) for i in served]
        self._exchange = Exchange(recipe, memory_budget, self._lines, self._control.slot_words, self._ring)
        self._telecoms[0].listen_to(self._exchange.returns.bell)
        self._fatal: BaseException | None = None
        self._news: SimpleQueue[None] = SimpleQueue()
        """Told to `open`: a worker has greeted or answered, or something broke."""
        self._notes: SimpleQueue[str] = SimpleQueue()
        """What the consumer should know of its workers, though nothing is lost."""
        self._turn = threading.Lock()
        self._serving = 0
        self._is_open = False
        self._is_put_out = False

    def _line(self, number: int, name: str) -> Line:
        line = Line(number, name, self._control.cell(number), self._config.timeout_s)
        line.stacks = Stacks()
        return line

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
        self._await(lambda: self._exchange.plan is not None)
        plan = self._exchange.plan
        assert plan is not None
        if self._config.validate:
            # The dataset can be built: the others need not wait for the first batch to do so too. If that batch cannot
            # be made, it is still the first thing that is told.
            self._take_on(others)
            if plan.step_count(0, self._recipe.consumer):
                self._await(lambda: self._exchange.first is not None)
                self._raise_failure(self._exchange.first)
        self._is_open = True
        return plan

    def _take_on(self, lines: list[Line]) -> None:
        for line in lines:
            self._telecom_of(line).take_on(line)

    def _await(self, happened: Callable[[], bool]) -> None:
        while not happened():
            if self._fatal is not None:
                raise self._fatal
            if self.closing:
                raise LoaderClosed("the loader was closed while it started")
            try:
                self._news.get(timeout=_LOOK_S)
            except Empty:
                continue

    def _raise_failure(self, delivery: Delivery | None) -> None:
        if isinstance(delivery, Failed):
            raise self.error_of(delivery)

    def _telecom_of(self, line: Line) -> Telecom:
        return self._telecoms[line.number % len(self._telecoms)]

    def _ring(self, line: Line) -> None:
        if not self.closing:
            self._telecom_of(line).ring()

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
            delivery = self._exchange.take(_LOOK_S if waited else 0.0)
            if isinstance(delivery, BaseException):
                raise delivery
            if delivery is not None:
                return delivery
            if self.closing:
                raise LoaderClosed(_CLOSED_MEANWHILE)
            self._tell_notes()
            if self.before_waiting is not None:
                self.before_waiting()
            short_of_slots = self._exchange.look_for_slots()
            waited += 1
            if short_of_slots is not None and waited > 2:  # not at once: another thread may be dropping a batch
                raise short_of_slots

    def _tell_notes(self) -> None:
        while not self._notes.empty():
            warnings.warn(self._notes.get_nowait(), RuntimeWarning, stacklevel=5)  # as from the loop over the loader

    def hold(self, parcel: Parcel) -> Lease:
        """The hold that the batch made of ``parcel`` has on its slot."""
        return self._exchange.hold(parcel)

    def restart(self, at: Position) -> int:
        """What is taken next is what follows from there; all that was made for others is void.

        Gives back the number of the next ticket. May be called while another thread waits in `take`.
        """
        first = self._exchange.restart(at)
        for telecom in self._telecoms:
            telecom.ring()
        return first

    def error_of(self, failed: Failed) -> SwiftLoaderError:
        """What to raise for a ticket that could not be made."""
        return error_of(failed, self._recipe.consumer)

    def statistics(self) -> dict[str, float]:
        """Slots, counted."""
        return self._exchange.statistics()

    # The telecom threads' side ----------------------------------------------------------------------------------

    def launch(self, line: Line) -> None:
        """Starts a worker for ``line``."""
        setup = Setup(
            worker=line.number,
            worker_count=self._config.worker_count,
            max_batch_nbytes=self._max_batch_nbytes,
            path=[str(Path(folder).absolute()) for folder in sys.path],
            folder=str(Path.cwd()),
            has_payload=self._engine.sends_payload,
        )
        assert line.stacks is not None
        try:
            line.connect(*self._engine.launch(line.name, setup, (self._control.fd, line.stacks.fd)))
        except WorkerStartFailed as error:
            self.broke(WorkerStartFailed(f"{line.name} could not be started: {error}"))

    def feed(self, line: Line) -> None:
        """Sends ``line`` the orders that it should have."""
        if not line.greeted or self.closing:
            return
        message = self._exchange.orders_for(line)
        if message is not None:
            line.send(*message)

    def received(self, line: Line, datagram: bytes, fds: list[int], now_ns: int) -> None:
        """A worker has said something."""
        kind = datagram[0]
        if kind == messages.PARCEL:
            self._exchange.came(line, [messages.read_parcel(datagram)], fds, now_ns)
        elif kind == messages.PARCELS:
            self._exchange.came(line, messages.read_parcels(datagram), fds, now_ns)
        elif kind == messages.VOID:
            self._exchange.empty(line, messages.read_void(datagram), None)
        elif kind == messages.HELLO:
            self._hello(line, messages.read_pickled(datagram))
        else:
            failure: messages.Failure = messages.read_pickled(datagram)
            if failure.seq:
                self._exchange.empty(line, failure.seq, failure.report)
            else:
                self.broke(start_error(line.name, failure.report))
        if not self._is_open:
            self._news.put(None)

    def look_after(self, lines: Iterable[Line], seconds: float) -> None:
        """``seconds`` have passed: workers that made no progress are told of, or killed and so replaced."""
        for line in lines:
            if line.was_asked:  # a tick ago: by now it has written
                line.read_stacks()
                self._notes.put(self._standstill(line))
            line.look(seconds)

    def _standstill(self, line: Line) -> str:
        assert line.process is not None
        kills = f"at timeout_s={self._config.timeout_s:g} it is killed and replaced"
        then = kills if line.greeted else "it is waited for, since only you know how long that may take"
        return (
            f"{line.name} (pid {line.process.pid}) {line.where_it_stands()} and has made no progress for "
            f"{line.policy.still_s:.1f} s; {then}. Its threads are at:\n{line.last_stack or 'it does not answer'}"
        )

    def died(self, line: Line) -> float | None:
        """A worker is gone without being asked; gives back after how long another is to be started, if one is."""
        assert line.process is not None
        status = line.process.exit_status()
        guilty = line.cell.index
        how = f"{line.name} (pid {line.process.pid}) {line.killed_for or ending(status)}"
        how += f" while it {line.where_it_stands()}"
        instruction = line.policy.happened(Event.DIED)
        line.disconnect()
        if self.closing or self._fatal is not None:
            return None
        if instruction is Instruction.GIVE_UP:
            stack = f". Its last stack:\n{line.last_stack}" if line.last_stack else ""
            self.broke(WorkerDied(f"{how}; it was started {line.policy.births} times and never got further{stack}"))
            return None
        self._exchange.gone(line, lambda deaths: self._poisoned(deaths, how, guilty, line.last_stack))
        return line.policy.delay_s

    def broke(self, error: BaseException) -> None:
        """Nothing more will come: the consumer is told at its next call."""
        if self._fatal is None:
            self._fatal = error
        self._exchange.fail(error)
        self._news.put(None)

    def telecom_left(self) -> None:
        """A telecom thread has ended; the last one puts the lights out."""
        with self._turn:
            self._serving -= 1
            if self._serving == 0:
                self._put_out()

    def _hello(self, line: Line, hello: Hello) -> None:
        with self._turn:  # without ``validate`` several workers may be the first at the same time
            if self._exchange.plan is None:
                self.sample_count = hello.sample_count
                self._exchange.set_up(self._recipe.plan(hello.sample_count))
        if hello.sample_count != self.sample_count:
            self.broke(
                ConfigError(
                    f"the dataset's len() is {hello.sample_count} in {line.name} and {self.sample_count} in the first "
                    "worker: it must be the same wherever the dataset is built"
                )
            )
            return
        line.greet()

    def _poisoned(self, deaths: int, how: str, guilty: int | None, stack: str) -> FailureReport:
        error = PoisonedTicket(
            f"this batch has killed {deaths} workers; the last: {how}. Look at that sample alone, "
            f"with worker_per_consumer=0{f'. Its last stack:{chr(10)}{stack}' if stack else ''}"
        )
        return FailureReport.of(error, "make the batch", guilty)

    # Closing ----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Has everything end without waiting for it; takes no lock."""
        self.closing = True
        self._exchange.fail(LoaderClosed(_CLOSED_MEANWHILE))  # wakes who waits in `take`
        for telecom in self._telecoms:
            telecom.ring()

    def close(self) -> None:
        """Ends the workers and the threads; may be called twice.

        From a signal handler that has interrupted this thread in the middle of something, it does not wait for the
        threads, which wait for that to end: the last of them puts the lights out.
        """
        self.abandon()
        if self._exchange.is_entered():
            return
        deadline = monotonic() + _JOIN_TIMEOUT_S
        for telecom in self._telecoms:
            telecom.join(max(0.0, deadline - monotonic()))
        if self._serving == 0:
            self._put_out()

    def _put_out(self) -> None:
        if self._is_put_out:
            return
        self._is_put_out = True
        self._engine.close()
        self._control.close()
        for line in self._lines:
            if line.stacks is not None:
                line.stacks.close()
        self._exchange.close()
        self._telecoms = []  # they know this pool: with the circle cut, all goes as soon as nobody needs it
