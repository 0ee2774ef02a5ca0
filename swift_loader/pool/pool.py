"""One consumer's workers: started, listened to, replaced when they die, and ended.

What they are told and what becomes of it is the exchange's business; when to read and write, the telecom threads'.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

from swift_loader.errors import LoaderClosed, WorkerStartFailed
from swift_loader.host.cgroup import OomKills
from swift_loader.pool import failures
from swift_loader.pool.budget import slots_allowed
from swift_loader.pool.exchange import Exchange
from swift_loader.pool.notes import Notes
from swift_loader.pool.policy import Event, Instruction, State
from swift_loader.pool.reuse import ground_of, kept_statistics
from swift_loader.pool.starter import Launcher, Starter
from swift_loader.pool.telecom import Telecom
from swift_loader.pool.tickets import Delivery, Failed
from swift_loader.pool.view import Onlooker, View
from swift_loader.wire import messages

if TYPE_CHECKING:
    from swift_loader.errors import SwiftLoaderError
    from swift_loader.plan.plan import Plan
    from swift_loader.plan.position import Position
    from swift_loader.pool.failures import Death
    from swift_loader.pool.line import Line
    from swift_loader.pool.process import Engine, Process
    from swift_loader.wire.messages import Hello, Leaving
    from swift_loader.wire.recipe import Recipe

#: Waits are cut into pieces of this length, between which the pool looks whether anything can still come.
_LOOK_S = 0.25
_JOIN_TIMEOUT_S = 5.0
#: While others work, a worker that the system refuses is asked for again after this.
_RETRY_S = 1.0
_CLOSED_AT_START = "the loader was closed while it started"
_CLOSED_MEANWHILE = "the loader was closed while a batch was waited for"


class Pool:
    """The workers of one consumer."""

    def __init__(self, recipe: Recipe, engine: Engine, memory_budget: int, onlooker: Onlooker) -> None:
        config = recipe.config
        most_slots = slots_allowed(config.worker_count)
        self.closing = False
        self.looks = config.measures
        self.sample_count = 0
        self.onlooker = onlooker
        self._recipe = recipe
        self._config = config
        self._notes = Notes()
        ground = ground_of(recipe, self._notes.put)
        self._launcher = Launcher(config, engine, config.max_batch_nbytes or memory_budget // 4, ground)
        name = f"swift-{{}}-c{recipe.consumer}w{{}}"
        self._lines = [self._launcher.line(i, name.format("worker", i)) for i in range(config.worker_count)]
        served = range(config.worker_count if config.multithread else 1)
        starter = Starter(f"swift-starter-c{recipe.consumer}", self._launcher, self)
        self._telecoms = [Telecom(name.format("telecom", i), self, starter) for i in served]
        self._threads: list[Starter | Telecom] = [starter, *self._telecoms]
        words = self._launcher.slot_words
        self._exchange = Exchange(recipe, memory_budget, most_slots, self._lines, words, self._ring)
        self._telecoms[0].listen_to(self._exchange.returns.bell)
        self.view = View(self._lines, self._exchange, self._launcher.control_fd)
        self._fatal: BaseException | None = None
        self._news: SimpleQueue[None] = SimpleQueue()
        """Told to `open`: a worker has greeted or answered, or something broke."""
        self._oom = OomKills()
        self._recycled = 0
        self._turn = threading.Lock()
        self._serving = 0
        self._is_open = False
        self._is_put_out = False

    # Starting ---------------------------------------------------------------------------------------------------

    def open(self) -> Plan:
        """Starts the workers; gives back the plan, which is known once the first has built its dataset.

        Raises:
            SwiftLoaderError: whatever kept them from starting, or, with ``validate``, from making the first batch.
        """
        self._begin_to_serve()
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
                if (few := self._exchange.told_few_slots()) is not None:
                    self._notes.put(few)
        self._is_open = True
        return plan

    def _begin_to_serve(self) -> None:
        """Counts as serving itself: if the pool is closed meanwhile, it is this thread that puts the lights out."""
        self.one_comes()
        try:
            self._launcher.open()
            for thread in self._threads:
                self.one_comes()
                try:
                    thread.start()
                except WorkerStartFailed:  # after Ctrl-C it may run all the same, and says itself when it leaves
                    self.one_left()
                    raise
        finally:
            self.one_left()

    def _take_on(self, lines: list[Line]) -> None:
        for line in lines:
            for telecom in self._serving_it(line):
                telecom.take_on(line)

    def _await(self, happened: Callable[[], bool]) -> None:
        while not happened():
            if self._fatal is not None:
                raise self._fatal
            if self.closing:
                raise LoaderClosed(_CLOSED_AT_START)
            try:
                self._news.get(timeout=_LOOK_S)
            except Empty:
                self.tell_notes()

    def _raise_failure(self, delivery: Delivery | None) -> None:
        if isinstance(delivery, Failed):
            raise self.error_of(delivery)

    def _serving_it(self, line: Line) -> list[Telecom]:
        """The thread that serves ``line``; none when all are gone."""
        number = line.number if self._config.multithread else 0
        return self._telecoms[number : number + 1]

    def _ring(self, line: Line) -> None:
        for telecom in self._serving_it(line):
            telecom.ring()

    # The consumer's side ----------------------------------------------------------------------------------------

    def take(self, before_waiting: Callable[[], None]) -> Delivery:
        """The next delivery, waited for.

        Args:
            before_waiting: Called before each wait: whoever copies from slots is to let go of those it is done with.

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
            self.tell_notes()
            before_waiting()
            short_of_slots = self._exchange.look_for_slots()
            waited += 1
            if short_of_slots is not None and waited > 2:  # not at once: another thread may be dropping a batch
                raise short_of_slots

    def tell_notes(self) -> None:
        """Warns of what the user should know."""
        self._notes.tell()

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
        return failures.error_of(failed, self._recipe.consumer)

    def worker_pids(self) -> list[int]:
        """Of the workers that live, or have just died."""
        processes = [line.process for line in self._lines]
        return [process.pid for process in processes if process is not None]

    def statistics(self) -> dict[str, float]:
        """Slots, counted, workers that had grown too large, and what was kept."""
        kept = kept_statistics(self._config, [line.cell for line in self._lines])
        return {**self._exchange.statistics(), "workers_recycled": self._recycled, **kept}

    # The threads' side ------------------------------------------------------------------------------------------

    def refused(self, line: Line, error: WorkerStartFailed) -> float | None:
        """The system refuses a worker now: gives back after how long to ask again, if that is to be."""
        line.refused += 1
        if not (self._is_open and any(other.greeted for other in self._lines)):
            self.broke(WorkerStartFailed(f"{line.name} could not be started: {error}"))
            return None
        if line.refused == 2:  # the first time it may be over in a second, or the others be dying too
            self._notes.put(f"{line.name} could not be started again: {error}. The other workers go on without it")
        return _RETRY_S

    def feed(self, line: Line) -> None:
        """Sends ``line`` the orders that it should have."""
        if not line.greeted or self.closing:
            return
        message = self._exchange.orders_for(line)
        if message is not None:
            if line.cautions:
                for caution in line.cautions:
                    line.send(messages.write_pickled(messages.CAUTION, caution))
                line.cautions.clear()
            line.send(*message)

    def received(self, line: Line, datagram: bytes, fds: list[int], now_ns: int) -> None:
        """A worker has said something."""
        kind, said = datagram[0], messages.read(datagram)
        if kind == messages.PARCEL:
            self._exchange.came(line, [said], fds, now_ns)
        elif kind == messages.PARCELS:
            self._exchange.came(line, said, fds, now_ns)
        elif kind == messages.VOID:
            self._exchange.empty(line, said, None)
        elif kind == messages.HELLO:
            self._hello(line, said)
        elif kind == messages.LEAVING:
            self._leaves(line, said)
        elif kind == messages.NOTE:
            self._notes.put_once(said)
        elif said.seq:
            self._exchange.empty(line, said.seq, said.report)
        else:
            self.broke(failures.start_error(line.name, said.report, self._recipe.consumer, line.number))
        if not self._is_open:
            self._news.put(None)

    def look_after(self, lines: Iterable[Line], seconds: float) -> list[Line]:
        """``seconds`` have passed: workers that made no progress are told of, or killed and so replaced.

        Gives back those that were killed and do not go: they are to be let go of.
        """
        lingering = []
        for line in lines:
            was_asked, instruction = line.was_asked, line.look(seconds)
            if was_asked and line.has_answered(seconds, is_killed=instruction is Instruction.KILL):
                self._notes.put(failures.told_of_standstill(line, self._config.timeout_s))
            if instruction in (Instruction.LET_GO, Instruction.GIVE_UP):
                lingering.append(line)
        self.onlooker.ticked()
        return lingering

    def died(self, line: Line) -> float | None:
        """A worker is gone without being asked; gives back after how long another is to be started, if one is."""
        assert line.process is not None
        status = line.process.exit_status()
        line.read_stacks()
        death = failures.death_of(line, status, self._oom)
        event = Event.KILLED if death.is_from_outside else Event.DIED
        others_serve = any(other.greeted for other in self._lines if other is not line)
        line.policy.happened(event, others_serve=others_serve, is_storm=death.is_early)
        line.disconnect()
        return self._succession(line, death)

    def let_go(self, line: Line) -> tuple[Process, float | None]:
        """A worker was killed and does not go: its process, and after how long another is to be started."""
        line.read_stacks()
        death = failures.lingering(line)
        self.left_behind(line)
        return line.let_go(), self._succession(line, death)

    def left_behind(self, line: Line) -> None:
        """The user is told of a worker that cannot be ended."""
        assert line.process is not None
        self._notes.put(failures.told_of_lingering(line.name, line.process.pid))

    def _succession(self, line: Line, death: Death) -> float | None:
        if self.closing or self._fatal is not None:
            return None
        self.onlooker.lost(line.number, death.how)
        if line.policy.state is State.GIVEN_UP:
            self.broke(failures.given_up(line, death, self._recipe.consumer))
            return None
        if death.by_kernel:
            self._notes.put(f"{death.how}; another takes its place")
        self._exchange.gone(line, death)
        return line.policy.delay_s

    def broke(self, error: BaseException) -> None:
        """Nothing more will come: the consumer is told at its next call."""
        if self._fatal is None:
            self._fatal = error
        self._exchange.fail(error)
        self._news.put(None)

    def one_comes(self) -> None:
        """Another thread is to serve.

        Raises:
            LoaderClosed: if it comes too late.
        """
        with self._turn:
            self._serving += 1
        if self.closing:  # asked only now: `close` says so first, and then asks whether anybody serves
            self.one_left()
            raise LoaderClosed(_CLOSED_AT_START)

    def one_left(self) -> None:
        """A thread serves no more; the last one puts the lights out."""
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
            self.broke(failures.other_length(line.name, hello.sample_count, self.sample_count))
            return
        self._launcher.will_need(hello.libraries)
        line.greet()
        self.onlooker.heard(line.number, f"{line.name} has built its dataset, in process {hello.pid}")

    def _leaves(self, line: Line, leaving: Leaving) -> None:
        most = self._config.max_worker_nbytes or 0
        if leaving.first_nbytes > most:
            self.broke(failures.too_large_at_once(line.name, leaving.first_nbytes, most))
        self._recycled += 1
        line.takes_leave()

    # Closing ----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Has everything end without waiting for it; takes no lock."""
        self.closing = True
        self._launcher.abandon()
        # Wakes who waits in `take` or `open`: after a long signal handler Python 3.11 forgets the deadline of a wait.
        self._exchange.fail(LoaderClosed(_CLOSED_MEANWHILE))
        self._news.put(None)
        for thread in self._threads:
            thread.ring()

    def close(self) -> None:
        """Ends the workers and the threads; may be called twice.

        From a signal handler that has interrupted this thread in the middle of something, it does not wait for the
        threads, which wait for that to end: the last of them puts the lights out.
        """
        self.abandon()
        if self._exchange.is_entered():
            return
        deadline = monotonic() + _JOIN_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        if self._serving == 0:
            self._put_out()

    def _put_out(self) -> None:
        if self._is_put_out:
            return
        self._is_put_out = True
        for telecom in self._telecoms:
            telecom.see_off()
        self._launcher.close()
        self._exchange.close()
        # They know this pool: with the circle cut, all goes as soon as nobody needs it.
        self._telecoms, self._threads = [], []
