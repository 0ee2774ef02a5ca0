"""All that the consumer knows of one worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swift_loader.pool.policy import Event, Instruction, Policy, State
from swift_loader.wire import messages
from swift_loader.wire.page import STARTS
from swift_loader.wire.stacks import Stacks

if TYPE_CHECKING:
    from swift_loader.batch.layout import BatchSpec
    from swift_loader.pool.calls import LineBell
    from swift_loader.pool.process import Process
    from swift_loader.wire.channel import Channel
    from swift_loader.wire.messages import Caution, Order
    from swift_loader.wire.page import Cell

#: Orders wait in a worker's channel for about this long, so that it has work while the consumer's Python is busy.
_QUEUED_NS = 20_000_000
#: But they reserve no more memory than this, if that is not a single slot: pages that are new cost more than they save.
_QUEUED_NBYTES = 64 << 20
_SMOOTHING = 0.2
#: A worker that is asked where it stands has written that after the first of these; after the second it is not waited
#: for.
_WRITES_S, _ANSWERS_S = 0.5, 2.0
#: A worker whose channel has ended for longer than this, and that is still there, does not just end.
_HANGS_UP_S = 1.0
#: Of a worker that stands still for so long it is told where it stands, or earlier where it would be killed earlier.
_WARN_S = 60.0


class Line:
    """One worker, as its consumer sees it. A line outlives its worker: a replacement continues it."""

    greeted = False
    """The worker has built its dataset and takes orders."""
    hungry = False
    """It could have taken an order and got none."""
    unmerged = 0
    """Parcels of this worker that wait for earlier ones."""
    was_asked = False
    """The worker was asked where it stands, and what it wrote was not read yet."""
    last_stack = ""
    has_told = False
    """The worker has answered an order, with a batch or with what kept it from making one."""
    is_leaving = False
    """The worker has said that it leaves."""
    is_cut_off = False
    """The worker and we could not understand each other any more, and it was killed for that."""
    has_hung_up = False
    """Nothing more is heard of the worker."""

    def __init__(self, number: int, name: str, cell: Cell, timeout_s: float, bell: LineBell) -> None:
        self.number = number
        self.name = name
        self.cell = cell
        self.bell = bell
        self.process: Process | None = None
        self.channel: Channel | None = None
        self.policy = Policy(timeout_s, min(timeout_s / 2, _WARN_S))
        self.stacks: Stacks | None = None
        """Where the worker writes them."""
        self._asked_s = 0.0
        """So long ago."""
        self._hung_up_s = 0.0
        """Since then, if it has; what ends closes its end first."""
        self.outstanding: dict[int, Order] = {}
        """Orders that were not answered yet, oldest first."""
        self.slotless_ns = 0
        """Since when it could have had an order, had there been a slot; 0 where that is not so."""
        self.slot_waits: dict[int, int] = {}
        """How long that went on before an order came, for those that did not come back yet."""
        self.known: set[int] = set()
        """Slots that the worker has mapped."""
        self.cautions: list[Caution] = []
        """To be said before the next orders."""
        self.told_count = 0
        """So many of the samples that are left out the worker was told of."""
        self.specs: dict[int, BatchSpec] = {}
        self.refused = 0
        """How often in a row the system has refused its worker a process."""
        self.is_hung = False
        """It was killed since it made no progress, or was stopped."""
        self.killed_for = ""
        """Why we killed the worker, if it was us."""
        self.deaths = 0
        self.last_death = ""
        """How the last of its workers that has died did so, for who looks on."""
        self.batch_ns = 0.0
        """What its batches take, of late; 0 where none was made."""

    def prepare(self) -> None:
        """A worker is about to be started for this line: what the cell says of the one before is over."""
        self.cell.enter(STARTS)

    def connect(self, process: Process, channel: Channel) -> None:
        """A worker was started for this line."""
        self.process, self.channel = process, channel
        self.refused = 0
        self.greeted = False
        self.policy.happened(Event.LAUNCHED)
        self.known.clear()
        self.slot_waits.clear()
        self.slotless_ns = 0
        self.specs.clear()
        self.cautions.clear()
        self.told_count = 0
        self.killed_for = self.last_stack = ""
        self.is_leaving = self.is_hung = self.is_cut_off = self.has_hung_up = self.was_asked = self.has_told = False
        self._hung_up_s = 0.0

    def greet(self) -> None:
        """The worker has built its dataset."""
        self.policy.happened(Event.GREETED)
        self.greeted = self.policy.state is State.SERVING  # not if it was killed meanwhile

    def takes_leave(self) -> None:
        """The worker has said that it leaves: it is asked for nothing more."""
        self.greeted, self.is_leaving = False, True
        self.policy.happened(Event.LEAVES)

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
            self.read_stacks()
            self.process.close()
        self.channel = self.process = None
        self.greeted = False

    def took(self, nanoseconds: int) -> None:
        """A batch was made in this time."""
        self.batch_ns += _SMOOTHING * (nanoseconds - self.batch_ns) if self.batch_ns else nanoseconds

    @property
    def has_made(self) -> bool:
        """Whether a batch was made by this line's workers."""
        return self.batch_ns > 0

    def queue_depth(self, most: int, batch_nbytes: int) -> int:
        """How many orders should wait in the channel."""
        if batch_nbytes:
            most = min(most, max(1, _QUEUED_NBYTES // batch_nbytes))
        # None waits before it is known how slow they are: the next one may be done by another worker meanwhile.
        return max(1, min(most, int(_QUEUED_NS / self.batch_ns))) if self.batch_ns else 0

    @property
    def is_slow(self) -> bool:
        """Whether its batches take so long that orders should not wait behind one."""
        return self.batch_ns > _QUEUED_NS / 2

    @property
    def has_finished_one(self) -> bool:
        """Whether the worker has finished a sample in its life."""
        return self.has_told or self.cell.is_past_a_sample

    @property
    def is_watched(self) -> bool:
        """Whether it should get on with something."""
        return self.process is not None and (bool(self.outstanding) or not self.greeted)

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
            self.was_asked, self._asked_s, self.last_stack = True, 0.0, ""
            if self.cell.can_be_asked:
                process.ask()
        elif instruction is Instruction.KILL:
            why = "was stopped (SIGSTOP, or a debugger)" if is_stopped else "made no progress"
            self.is_hung = True
            self._kill(f"{why} for {self.policy.still_s:.1f} s")
        return instruction

    def _kill(self, why: str) -> None:
        assert self.process is not None
        self.killed_for = why
        self.greeted = False  # it takes no more orders
        self.process.kill()

    def read_stacks(self) -> None:
        """Keeps what the worker has written of its threads since it was looked at."""
        self.was_asked = False
        if self.stacks is not None:
            self.last_stack = self.stacks.fresh() or self.last_stack

    def has_answered(self, seconds: float, *, is_killed: bool) -> bool:
        """``seconds`` have passed since it was asked, or since this was: whether what it has written is to be told."""
        self._asked_s += seconds
        if self._asked_s < _WRITES_S and not is_killed:
            return False
        may_answer = self.cell.can_be_asked and not is_killed and self._asked_s < _ANSWERS_S
        self.read_stacks()
        self.was_asked = may_answer and not self.last_stack
        return not self.was_asked

    def where_it_stands(self) -> str:
        """What it is at, in words."""
        index = self.cell.index
        return f"{self.cell.stage}{'' if index is None else f' sample {index}'}"

    def in_hand(self) -> Order | None:
        """The order that the worker is at: as it says itself, or the oldest."""
        for order in self.outstanding.values():
            return self.outstanding.get(self.cell.seq, order)
        return None

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
        state = "absent" if self.process is None else self.cell.stage if self.greeted else "starts"
        return f"<Line {self.name} {state}, {len(self.outstanding)} ordered, {self.unmerged} unmerged>"
