"""One worker, as who looks after it sees it: its process, its channel, its health.

All of this is the business of the telecom thread that serves the line, and of nobody else: others only look. What the
worker is ordered stands in the line's book, which is under the exchange's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swift_loader.pool.inquiry import Inquiry
from swift_loader.pool.policy import Event, Instruction, Policy, State
from swift_loader.wire import messages
from swift_loader.wire.page import STARTS

if TYPE_CHECKING:
    from concurrent.futures import Future

    from swift_loader.orders.book import Book
    from swift_loader.pool.process import Process
    from swift_loader.wire.channel import Channel
    from swift_loader.wire.page import Cell

#: A worker whose channel has ended for longer than this, and that is still there, does not just end.
_HANGS_UP_S = 1.0
#: Of a worker that stands still for so long it is told where it stands, or earlier where it would be killed earlier.
_WARN_S = 60.0


class Line:
    """One worker. A line outlives its worker: a replacement continues it."""

    is_leaving = False
    """The worker has said that it leaves."""
    is_cut_off = False
    """The worker and we could not understand each other any more, and it was killed for that."""
    is_hung = False
    """It was killed since it made no progress, or was stopped."""
    killed_for = ""
    """Why we killed the worker, if it was us."""
    has_hung_up = False
    """Nothing more is heard of the worker."""
    refused = 0
    """How often in a row the system has refused its worker a process."""
    answer: Future[Any] | None = None
    """What its worker's start waits for. Written by the starter."""
    deaths = 0
    last_death = ""
    """How the last of its workers that has died did so, for who looks on."""

    def __init__(self, name: str, cell: Cell, timeout_s: float, book: Book) -> None:
        self.number = book.number
        self.name = name
        self.cell = cell
        self.book = book
        self.process: Process | None = None
        self.channel: Channel | None = None
        self.policy = Policy(timeout_s, min(timeout_s / 2, _WARN_S))
        self.inquiry = Inquiry(cell)
        self._hung_up_s = 0.0
        """Since then, if it has; what ends closes its end first."""

    def prepare(self) -> None:
        """A worker is about to be started for this line: what the cell says of the one before is over."""
        self.answer = None
        self.cell.enter(STARTS)

    @property
    def is_answered(self) -> bool:
        """Whether what its worker's start waits for has happened, if that is known."""
        return self.answer is not None and self.answer.done()

    def connect(self, process: Process, channel: Channel) -> None:
        """A worker was started for this line."""
        self.process, self.channel = process, channel
        self.refused = 0
        self.book.shuts()
        self.policy.happened(Event.LAUNCHED)
        self.inquiry.begin()
        self.killed_for = ""
        self.is_leaving = self.is_hung = self.is_cut_off = self.has_hung_up = False
        self._hung_up_s = 0.0

    def greet(self) -> None:
        """The worker has built its dataset."""
        self.policy.happened(Event.GREETED)
        if self.policy.state is State.SERVING:  # not if it was killed meanwhile
            self.book.opens()

    def takes_leave(self) -> None:
        """The worker has said that it leaves: it is asked for nothing more."""
        self.book.shuts()
        self.is_leaving = True
        self.policy.happened(Event.LEAVES)

    def died(self, how: str) -> None:
        """For who looks on."""
        self.deaths, self.last_death = self.deaths + 1, how

    def let_go(self) -> Process:
        """Forgets a worker that cannot be ended, and ends what it has started; gives it back."""
        process, self.process = self.process, None
        assert process is not None
        process.cut()
        self.disconnect()
        return process

    def disconnect(self) -> None:
        """Lets go of a worker that is gone."""
        if self.channel is not None:
            self.channel.close()
        if self.process is not None:
            self.inquiry.read()
            self.process.close()
        self.channel = self.process = None
        self.book.shuts()

    @property
    def has_finished_one(self) -> bool:
        """Whether the worker has finished a sample in its life."""
        return self.book.has_told or self.cell.is_past_a_sample

    @property
    def is_watched(self) -> bool:
        """Whether it should get on with something."""
        return self.process is not None and (bool(self.book.outstanding) or not self.book.takes_orders)

    def look(self, seconds: float) -> Instruction:
        """``seconds`` have passed: does what the policy says about a worker that made no progress, and tells it."""
        process = self.process
        if process is None:
            return Instruction.NOTHING
        if self.has_hung_up and not self.is_leaving:
            self._hung_up_s += seconds
            if self._hung_up_s > _HANGS_UP_S:
                self.cut_off("closed its channel, or wrote nothing to it")
        is_stopped = self.is_watched and process.is_stopped()
        instruction = self.policy.looked(self.cell.place, seconds, is_busy=self.is_watched, is_stopped=is_stopped)
        if instruction is Instruction.WARN:
            if self.inquiry.ask():
                process.ask()
        elif instruction is Instruction.KILL:
            why = "was stopped (SIGSTOP, or a debugger)" if is_stopped else "made no progress"
            self.is_hung = True
            self._kill(f"{why} for {self.policy.still_s:.1f} s")
        return instruction

    def _kill(self, why: str) -> None:
        assert self.process is not None
        self.killed_for = why
        self.book.shuts()
        self.process.kill()

    def where_it_stands(self) -> str:
        """What it is at, in words."""
        index = self.cell.index
        return f"{self.cell.stage}{'' if index is None else f' sample {index}'}"

    def send(self, datagram: bytes, fds: Sequence[int] = ()) -> None:
        """Sends if there is somebody; a worker that has just died is seen by its sentinel.

        One that lives and cannot be sent to would wait for its orders for ever: it is killed.
        """
        if self.channel is None or self.killed_for:
            return
        try:
            sent = self.channel.send(datagram, fds)
        except (BrokenPipeError, ConnectionResetError):
            return
        except OSError as error:
            self.cut_off(f"could not be sent its orders ({error})")
            return
        if not sent:
            self.cut_off(f"does not read its orders: {len(datagram)} bytes found no room")

    def cut_off(self, why: str) -> None:
        """Nothing can be said to the worker, or understood of what it says: it is killed, and another comes."""
        if self.process is None or self.killed_for:
            return
        self.policy.happened(Event.CUT_OFF)
        self.is_cut_off = True
        self._kill(f"was killed because it {why}")

    def retire(self) -> None:
        """Asks the worker to leave."""
        self.send(bytes((messages.RETIRE,)))

    def __repr__(self) -> str:
        state = "absent" if self.process is None else self.cell.stage if self.book.takes_orders else "starts"
        return f"<Line {self.name} {state}, {len(self.book.outstanding)} ordered, {self.book.unmerged} unmerged>"
