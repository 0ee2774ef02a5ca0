"""The thread that serves lines: it has their workers started, reads what they say, sends orders, and sees them die.

All it waits for is in one poll: the channels, the workers' sentinels, and a bell for what the rest of the process
wants. It decides nothing; the supervisor does.

The order of a worker's events: the starter has it launched and tells (`was_started`), this thread connects it and
listens; its channel may end before its sentinel tells that it is gone, or after. Only the sentinel counts, and what is
still in the channel then is read first, so nothing that a worker has said is lost by its death.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections import deque
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING

from swift_loader.wire.messages import Garbled

if TYPE_CHECKING:
    from swift_loader.host.bell import Bell
    from swift_loader.pool.calls import Calls
    from swift_loader.pool.lights import Lights
    from swift_loader.pool.line import Line
    from swift_loader.pool.process import Process, Started
    from swift_loader.pool.starter import Starter
    from swift_loader.pool.supervisor import Supervisor

#: A worker that is asked to leave may finish its sample; then it is killed.
_LEAVE_TIMEOUT_S = 0.5
#: A worker that stands still is seen to do so within one of these, and is overdue within another: together no more than
#: half a second late, and never early.
_TICK_S = 0.25
#: While a start is waited for, its time is looked at so often.
_DUE_TICK_S = 0.05
#: The kernel ends a killed process at once, unless it sits in a dead file system.
_KILL_TIMEOUT_S = 2.0


class Telecom:
    """Serves one line, or all of a pool's."""

    def __init__(self, name: str, calls: Calls, supervisor: Supervisor, starter: Starter, lights: Lights) -> None:
        self._calls = calls
        self._supervisor = supervisor
        self._starter = starter
        self._lights = lights
        self._served: dict[int | None, Line] = {}
        """All lines of this thread, by their numbers."""
        self._lines: dict[int, Line] = {}
        """Those with a worker, by the descriptor of its channel ..."""
        self._sentinels: dict[int, Line] = {}
        """... and by its sentinel, which is there for a moment longer."""
        self._lingering: dict[int, Process] = {}
        """Processes that were killed and are still there, by their sentinels. Nobody waits for them."""
        self._arriving: deque[tuple[float, Line]] = deque()
        """Lines whose worker is to be started, and when."""
        self._starting: deque[tuple[Line, Started | float | None]] = deque()
        """Lines whose worker was started, or after how long it is to be asked for again, if at all."""
        self._poll = select.poll()
        self._poll.register(calls.bell.fd, select.POLLIN)
        self._homecoming: Bell | None = None
        """Rung when a slot comes home that somebody waits for, where this thread is to see to that."""
        self._spoke: set[int | None] = set()
        """Lines whose workers have said something, and may want orders."""
        self._ticked_s = 0.0
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        """Begun and waited for by the pool; counts as serving until it ends."""

    def take_on(self, line: Line) -> None:
        """From now on this thread serves ``line``, and has a worker started for it. Called by who opens the pool."""
        self._served[line.number] = line
        self._expect(line, 0.0)
        self.ring()

    def was_started(self, line: Line, started: Started | float | None) -> None:
        """Called by the starter, in its thread; also after this one has ended: `see_off` looks once more."""
        self._starting.append((line, started))
        self.ring()

    def ring(self) -> None:
        """Something has changed. Called from anywhere, a signal handler too: takes no lock."""
        self._calls.ring()

    def listen_to(self, homecoming: Bell) -> None:
        """This thread sees to slots that come home. Called before it begins to serve."""
        self._homecoming = homecoming
        self._poll.register(homecoming.fd, select.POLLIN)

    def _run(self) -> None:
        try:
            lane = self._supervisor.onlooker.lane_of(self.thread.name)
            while not self._lights.closing:
                self._ask_for_those_due()
                self._welcome()
                ready = self._poll.poll(self._patience_ms())
                begun = perf_counter_ns() if lane else 0
                for fd, _ in ready:
                    self._answer(fd)
                read = perf_counter_ns() if lane else 0
                self._feed()
                if lane:
                    lane(("read parcels", begun, read))
                    lane(("send orders", read, perf_counter_ns()))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the consumer must hear of it
            self._supervisor.broke(error)
        finally:
            self.see_off()
            self._lights.leaves()

    def _feed(self) -> None:
        """Those that have said something, and those that were rung for: with many lines, a few of them all."""
        rung, spoke = self._calls.answered(), self._spoke
        self._spoke = set()
        for line in list(self._served.values()) if None in rung else [self._served[number] for number in rung | spoke]:
            self._supervisor.feed(line)

    def _patience_ms(self) -> float | None:
        """While something is being made, this thread wakes four times a second to see whether it goes on; else never.

        Time is counted in these ticks: when the whole job is stopped and goes on later, no worker seems to hang.
        """
        is_watching = any(line.is_watched for line in self._lines.values())
        passed_s = monotonic() - self._ticked_s
        if not is_watching:
            self._ticked_s += passed_s
        elif passed_s >= _TICK_S:
            self._ticked_s += passed_s
            self._spoke.update(self._served)  # to be sure
            for line in self._supervisor.look_after(list(self._lines.values()), min(passed_s, 2 * _TICK_S)):
                self._let_go(line)
        if self._arriving:
            return _DUE_TICK_S * 1000
        return max(1.0, (_TICK_S - (monotonic() - self._ticked_s)) * 1000) if is_watching else None

    def _answer(self, fd: int) -> None:
        if (line := self._lines.get(fd)) is not None:
            self._read(line)
        elif (line := self._sentinels.get(fd)) is not None:
            self._bury(line)
        elif fd == self._calls.bell.fd:
            self._calls.bell.hush()
        elif self._homecoming is not None and fd == self._homecoming.fd:
            self._homecoming.hush()
            self._supervisor.slots_came_home()
        elif (process := self._lingering.pop(fd, None)) is not None:
            self._unregister(fd)
            process.exit_status()  # as in `see_off`
            process.close()

    def _ask_for_those_due(self) -> None:
        for _ in range(len(self._arriving)):
            due_s, line = self._arriving.popleft()
            if due_s > monotonic() and not line.is_answered:
                self._arriving.append((due_s, line))
            else:
                line.prepare()
                self._starter.want(line, self.was_started)

    def _expect(self, line: Line, delay_s: float | None) -> None:
        """A worker is to be started for the line after so long, if at all."""
        if delay_s is not None:
            self._arriving.append((monotonic() + delay_s, line))

    def _welcome(self) -> None:
        """From now on those that were started are listened to."""
        while self._starting:
            line, started = self._starting.popleft()
            if not isinstance(started, tuple):
                self._expect(line, started)
                continue
            process, channel = started
            line.connect(process, channel)
            self._lines[channel.fileno()] = line
            self._sentinels[process.sentinel] = line
            self._poll.register(channel.fileno(), select.POLLIN)
            self._poll.register(process.sentinel, select.POLLIN)

    def _read(self, line: Line) -> bool:
        """Reads all that has come; False at the end of the channel."""
        channel = line.channel
        assert channel is not None
        self._spoke.add(line.number)
        while (received := channel.receive()) is not None:
            datagram, fds = received
            if not datagram:
                # Its sentinel tells what that means; until then there is nothing to read here.
                self._unregister(channel.fileno())
                line.has_hung_up = True
                return False
            try:
                self._supervisor.received(line, datagram, fds, perf_counter_ns() if self._supervisor.looks else 0)
            except Garbled as error:
                line.cut_off(f"wrote to a descriptor that is ours ({error})")
        return True

    def _bury(self, line: Line) -> None:
        """The worker is gone: what it still said counts, then the supervisor decides."""
        if line.channel is not None and line.channel.fileno() in self._lines:
            self._read(line)
        self._drop(line)
        self._expect(line, self._supervisor.died(line))

    def _let_go(self, line: Line) -> None:
        """The worker was killed and does not go: another takes its place."""
        self._drop(line)
        process, delay_s = self._supervisor.let_go(line)
        self._lingering[process.sentinel] = process
        self._poll.register(process.sentinel, select.POLLIN)
        self._expect(line, delay_s)

    def _drop(self, line: Line) -> None:
        assert line.channel is not None
        assert line.process is not None
        self._unregister(line.channel.fileno())
        self._unregister(line.process.sentinel)
        self._lines.pop(line.channel.fileno(), None)
        self._sentinels.pop(line.process.sentinel, None)

    def _unregister(self, fd: int) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)

    def see_off(self) -> None:
        """Asks the workers to leave, and kills those that do not.

        Called once more when both this thread and the starter have ended, which may have started one meanwhile.
        """
        self._welcome()
        lines = list(self._sentinels.values())
        for line in lines:
            line.retire()
        there = _still_there(lines, _LEAVE_TIMEOUT_S)
        for line in there:
            if line.process is not None:
                line.process.kill()
        stuck = _still_there(there, _KILL_TIMEOUT_S)
        for line in lines:
            if line in stuck:
                self._supervisor.left_behind(line)
            elif line.process is not None:
                line.process.exit_status()  # whoever started it may let go of its number now
            line.disconnect()
        self._sentinels.clear()
        for process in self._lingering.values():
            process.close()
        self._lingering.clear()


def _still_there(lines: list[Line], timeout_s: float) -> list[Line]:
    """Waits until all workers are gone; gives back those that are not."""
    waiting = {line.process.sentinel: line for line in lines if line.process is not None}
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    deadline = monotonic() + timeout_s
    while waiting and (left := deadline - monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            poll.unregister(fd)
            del waiting[fd]
    return list(waiting.values())
