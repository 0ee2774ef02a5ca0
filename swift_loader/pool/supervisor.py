"""What is done about what workers say and how they end.

Called by the telecom threads, each for the lines that it serves, and by the starter. What concerns orders and parcels
goes on to the exchange; what is to be done about a worker, its line's policy says.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from swift_loader.errors import WorkerStartFailed
from swift_loader.host.cgroup import OomKills
from swift_loader.pool import failures
from swift_loader.pool.policy import Event, Instruction, State
from swift_loader.wire import messages
from swift_loader.wire.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from swift_loader.errors import FailureReport
    from swift_loader.orders.death import Death
    from swift_loader.orders.exchange import Exchange
    from swift_loader.pool.lights import Lights
    from swift_loader.pool.line import Line
    from swift_loader.pool.notes import Notes
    from swift_loader.pool.process import Process
    from swift_loader.pool.starter import Launcher
    from swift_loader.pool.view import Onlooker
    from swift_loader.wire.messages import Hello, Leaving
    from swift_loader.wire.recipe import Recipe

#: While others work, a worker that the system refuses is asked for again after this.
_RETRY_S = 1.0


class Supervisor:
    """Of one pool's workers."""

    def __init__(
        self,
        recipe: Recipe,
        exchange: Exchange,
        launcher: Launcher,
        lights: Lights,
        notes: Notes,
        onlooker: Onlooker,
    ) -> None:
        self.onlooker = onlooker
        self.looks = recipe.config.measures
        """Whether what batches cost is noted; if not, nobody looks at the clock."""
        self._recipe = recipe
        self._config = recipe.config
        self._exchange = exchange
        self._launcher = launcher
        self._lights = lights
        self._notes = notes
        self._oom = OomKills()
        self._greeting = threading.Lock()
        self.facts = Facts(0)
        """As the first worker has told them."""
        self.fetching: set[tuple[str, str]] = set()
        """Who fetches for the workers' datasets, as they have told."""
        self.recycled = 0
        """Workers that had grown too large."""
        self.reconnected = 0
        """Connections to servers that were lost."""
        self._left_out: set[int] = set()
        """Lines whose servers are not believed any more, and to which nobody connects again."""
        self.is_open = False
        """All workers were started once: from now on the pool goes on without one of them."""
        self.fatal: BaseException | None = None
        """Nothing more will come, for this reason."""
        self.news: SimpleQueue[None] = SimpleQueue()
        """Told to who waits for the pool to open: a worker has greeted or answered, or something broke."""

    # Said by the starter ----------------------------------------------------------------------------------------

    def awaited(self, note: str) -> None:
        """There is no place for a worker yet: the user is told why."""
        if note:
            self._notes.put_once(note)

    def refused(self, line: Line, error: WorkerStartFailed) -> float | None:
        """The system refuses a worker now: gives back after how long to ask again, if that is to be."""
        line.refused += 1
        if not (self.is_open and self._exchange.others_serve(line.book)):
            self.broke(WorkerStartFailed(f"{line.name} could not be started: {error}"))
            return None
        if line.refused == 2:  # the first time it may be over in a second, or the others be dying too
            self._notes.put(f"{line.name} could not be started again: {error}. The other workers go on without it")
        return _RETRY_S

    # Said by the telecom thread that serves the line -------------------------------------------------------------

    def feed(self, line: Line) -> None:
        """Sends ``line`` the orders that it should have."""
        if not line.book.takes_orders or self._lights.closing:
            return
        message = self._exchange.orders_for(line.book)
        if message is None:
            return
        # The worker may be gone by now, or go before it reads this: the orders are in its book, and made again.
        cautions, orders, fds = message
        for caution in cautions:
            line.send(messages.write_pickled(messages.CAUTION, caution))
        line.send(orders, fds)

    def slots_came_home(self) -> None:
        """Slots were dropped, for which workers wait."""
        self._exchange.slots_came_home()

    def received(self, line: Line, datagram: bytes, fds: list[int], now_ns: int) -> None:
        """A worker has said something. It may be gone by now: what it has said counts.

        Raises:
            Garbled: if that is no message.
        """
        kind, said = datagram[0], messages.read(datagram)
        if kind == messages.PARCEL:
            self._exchange.came(line.book, [said], fds, now_ns)
        elif kind == messages.PARCELS:
            self._exchange.came(line.book, said, fds, now_ns)
        elif kind == messages.VOID:
            self._exchange.empty(line.book, said, None)
        elif kind == messages.HELLO:
            self._hello(line, said)
        elif kind == messages.LEAVING:
            self._leaves(line, said)
        elif kind == messages.NOTE:
            self._notes.put_once(said)
        elif said.seq:
            self._exchange.empty(line.book, said.seq, said.report)
        else:
            self.broke(failures.start_error(line.name, said.report, self._recipe.consumer, line.number))
        if not self.is_open:
            self.news.put(None)

    def look_after(self, lines: Iterable[Line], seconds: float) -> list[Line]:
        """``seconds`` have passed: workers that made no progress are told of, or killed and so replaced.

        Gives back those that were killed and do not go: they are to be let go of.
        """
        lingering = []
        for line in lines:
            inquiry, was_asked = line.inquiry, line.inquiry.is_open
            instruction = line.look(seconds)
            if was_asked and inquiry.is_answered(seconds, is_killed=instruction is Instruction.KILL):
                self._notes.put(failures.told_of_standstill(line, self._config.timeout_s))
            if instruction in (Instruction.LET_GO, Instruction.GIVE_UP):
                lingering.append(line)
        self.onlooker.ticked()
        return lingering

    def died(self, line: Line) -> float | None:
        """A worker is gone without being asked; gives back after how long another is to be started, if one is.

        All that it had said was received before.
        """
        assert line.process is not None
        status = line.process.exit_status()
        line.inquiry.read()
        death = failures.death_of(line, status, self._oom)
        event = Event.KILLED if death.is_from_outside else Event.DIED
        line.policy.happened(event, others_serve=self._exchange.others_serve(line.book), is_storm=death.is_early)
        line.disconnect()
        return self._succession(line, death)

    def let_go(self, line: Line) -> tuple[Process, float | None]:
        """A worker was killed and does not go: its process, and after how long another is to be started."""
        line.inquiry.read()
        death = failures.lingering(line)
        self.left_behind(line)
        return line.let_go(), self._succession(line, death)

    def left_behind(self, line: Line) -> None:
        """The user is told of a worker that cannot be ended."""
        assert line.process is not None
        self._notes.put(failures.told_of_lingering(line.name, line.process.pid))

    # Said by anybody --------------------------------------------------------------------------------------------

    def broke(self, error: BaseException) -> None:
        """Nothing more will come: the consumer is told at its next call."""
        if self.fatal is None:
            self.fatal = error
        self._exchange.ready.fail(error)
        self.news.put(None)

    def _succession(self, line: Line, death: Death) -> float | None:
        if self._lights.closing or self.fatal is not None:
            return None
        self.onlooker.lost(line.number, death.how)
        if line.policy.state is State.GIVEN_UP:
            self.broke(failures.given_up(line, death, self._recipe.consumer))
            return None
        if death.by_kernel:
            self._notes.put(f"{death.how}; another takes its place")
        line.died(death.how)
        self._exchange.gone(line.book, death)
        return None if line.number in self._left_out else line.policy.delay_s

    def _hello(self, line: Line, hello: Hello) -> None:
        with self._greeting:  # without ``validate`` several workers may be the first at the same time
            if self._exchange.plan is None:
                self.facts = hello.facts
                self._exchange.set_up(self._recipe.plan(hello.facts))
        if hello.facts != self.facts:
            self.broke(failures.other_facts(line.name, hello.facts, self.facts))
            return
        self._launcher.will_need(hello.libraries)
        self.fetching.update(hello.fetching)
        line.greet()
        self.onlooker.heard(line.number, f"{line.name} has built its dataset, in process {hello.pid}")

    def _leaves(self, line: Line, leaving: Leaving) -> None:
        most = self._config.max_worker_nbytes or 0
        if leaving.first_nbytes > most:
            self.broke(failures.too_large_at_once(line.name, leaving.first_nbytes, most))
        if leaving.report is not None:
            self._leave_out(line, leaving.report)
        elif leaving.why:
            self._notes.put_once(leaving.why)
            self.reconnected += 1
        else:
            self.recycled += 1
        line.takes_leave()

    def _leave_out(self, line: Line, report: FailureReport) -> None:
        """A server has said what none says. Others may be as they should, and have not met yet: they are waited for."""
        self._left_out.add(line.number)
        if len(self._left_out) == self._launcher.line_count:
            self.broke(failures.start_error(line.name, report, self._recipe.consumer, line.number))
        else:
            self._notes.put(f"{report.text}. It is left out from now on, and the others go on without it")
