"""What to do when a worker starts, stands still, is stopped or dies. Pure: events in, instructions out.

    LAUNCHED -> starts --GREETED--> serves
                  |                    |        LATE: warned of, once, with its stack
                  |                    |        OVERDUE, STOPPED: killed; where the kernel cannot end it: let go of
                  |                    |        LEAVES: it has grown too large, or lost its server: asked nothing more
                  |                    |        CUT_OFF: no order reaches it any more: killed
                  +---- DIED ----------+------> launched again, at once where it had served; where it had not,
                                                later each time, and never again after `MAX_BIRTHS`. One that
                                                others have killed is, for as long as another line's worker serves

How long a worker has stood still is counted in ticks of the consumer's own: when the whole job is stopped and goes on
later, nobody seems to hang. A worker that waits for orders may stand still for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

#: A worker that dies this often before it has built its dataset is not started again.
MAX_BIRTHS = 3
#: One that was killed by somebody else may do so more often where no other serves: a storm of kills passes.
MAX_KILLED_BIRTHS = 12
#: And this often where the kernel would have told if it had done that for want of memory, which does not pass.
MAX_STORMY_BIRTHS = 10 * MAX_KILLED_BIRTHS
#: Before the second and the third start of such a worker.
DELAYS_S = (0.1, 0.4)
#: A worker that the system has stopped, and that made no progress for so long, is replaced.
STOPPED_S = 0.5
#: A process that was killed and is still there after so long waits in the kernel, for a file system that is dead.
LINGERS_S = 1.5


class State(Enum):
    """What a line's worker is at, as far as the consumer knows."""

    ABSENT = "is absent"
    STARTING = "starts"
    SERVING = "serves"
    LEAVING = "is about to leave"
    CONDEMNED = "was killed"
    GIVEN_UP = "was given up"


class Event(Enum):
    """What was seen of it."""

    LAUNCHED = "a process was started"
    GREETED = "it has built its dataset"
    STOPPED = "the system has stopped it"
    LATE = "it stands still"
    OVERDUE = "it stands still for too long"
    DIED = "it is gone"
    KILLED = "somebody else has killed it"
    LEAVES = "it has grown too large, and leaves"
    LINGERS = "it was killed, and is still there"
    CUT_OFF = "it cannot be sent anything"


class Instruction(Enum):
    """What is to be done."""

    NOTHING = "nothing"
    WARN = "tell where it stands"
    KILL = "kill it"
    LET_GO = "start another without waiting for its end"
    GIVE_UP = "tell the consumer that there will be no more"


#: What is possible at all. Whether another is started after a death depends on how often it happened: see `Policy`.
TABLE: dict[tuple[State, Event], tuple[State, Instruction]] = {
    (State.ABSENT, Event.LAUNCHED): (State.STARTING, Instruction.NOTHING),
    (State.STARTING, Event.GREETED): (State.SERVING, Instruction.NOTHING),
    (State.STARTING, Event.STOPPED): (State.CONDEMNED, Instruction.KILL),
    # A dataset may take as long as it takes to build: only its user can know.
    (State.STARTING, Event.LATE): (State.STARTING, Instruction.WARN),
    (State.STARTING, Event.OVERDUE): (State.STARTING, Instruction.NOTHING),
    (State.STARTING, Event.DIED): (State.ABSENT, Instruction.NOTHING),
    (State.STARTING, Event.KILLED): (State.ABSENT, Instruction.NOTHING),
    (State.STARTING, Event.CUT_OFF): (State.CONDEMNED, Instruction.KILL),
    # What stands for a server has not found it where it was: it may be elsewhere by now.
    (State.STARTING, Event.LEAVES): (State.LEAVING, Instruction.NOTHING),
    (State.SERVING, Event.STOPPED): (State.CONDEMNED, Instruction.KILL),
    (State.SERVING, Event.LATE): (State.SERVING, Instruction.WARN),
    (State.SERVING, Event.OVERDUE): (State.CONDEMNED, Instruction.KILL),
    (State.SERVING, Event.DIED): (State.ABSENT, Instruction.NOTHING),
    (State.SERVING, Event.KILLED): (State.ABSENT, Instruction.NOTHING),
    (State.SERVING, Event.CUT_OFF): (State.CONDEMNED, Instruction.KILL),
    (State.SERVING, Event.LEAVES): (State.LEAVING, Instruction.NOTHING),
    (State.LEAVING, Event.STOPPED): (State.CONDEMNED, Instruction.KILL),
    (State.LEAVING, Event.LATE): (State.LEAVING, Instruction.NOTHING),
    (State.LEAVING, Event.OVERDUE): (State.CONDEMNED, Instruction.KILL),
    (State.LEAVING, Event.DIED): (State.ABSENT, Instruction.NOTHING),
    (State.LEAVING, Event.KILLED): (State.ABSENT, Instruction.NOTHING),
    (State.LEAVING, Event.CUT_OFF): (State.CONDEMNED, Instruction.KILL),
    # What it says or does between our signal and its end changes nothing.
    (State.CONDEMNED, Event.GREETED): (State.CONDEMNED, Instruction.NOTHING),
    (State.CONDEMNED, Event.LEAVES): (State.CONDEMNED, Instruction.NOTHING),
    (State.CONDEMNED, Event.DIED): (State.ABSENT, Instruction.NOTHING),
    (State.CONDEMNED, Event.KILLED): (State.ABSENT, Instruction.NOTHING),
    (State.CONDEMNED, Event.LINGERS): (State.ABSENT, Instruction.LET_GO),
}


class PolicyError(AssertionError):
    """An event that cannot happen in this state: a bug of ours."""


@dataclass(slots=True)
class Policy:
    """One line's worker, and those that follow it.

    Args:
        timeout_s: A worker that stands still for so long is killed.
        warning_s: And for so long, it is warned of.
    """

    timeout_s: float
    warning_s: float
    state: State = State.ABSENT
    still_s: float = 0.0
    """For how long it has stood still."""
    births: int = 0
    """Workers in a row that died before they had built their dataset."""
    _failed_births: int = 0
    """Those of them that nobody else had killed."""
    _lingers_s: float = 0.0
    _place: tuple[int, ...] = ()
    _warned: bool = False
    _has_served: bool = False

    def happened(self, event: Event, *, others_serve: bool = False, is_storm: bool = False) -> Instruction:
        """What to do about it.

        Args:
            event: What was seen.
            others_serve: The work goes on without this line's worker.
            is_storm: It was certainly not the kernel that has killed it.
        """
        if (self.state, event) not in TABLE:
            raise PolicyError(f"{event.value!r}, of a worker that {self.state.value}")
        before = self.state
        self.state, instruction = TABLE[before, event]
        if event is Event.LAUNCHED:
            self.births += 1
            self._has_served = False
            self._begin_anew()
        elif event is Event.GREETED:
            self.births, self._failed_births, self._has_served = 0, 0, True
            self._begin_anew()
        elif before is State.LEAVING or self._has_served:
            pass
        elif self._is_last_birth(event, others_serve=others_serve, is_storm=is_storm):
            self.state, instruction = State.GIVEN_UP, Instruction.GIVE_UP
        if instruction is Instruction.KILL:
            self._lingers_s = 0.0
        return instruction

    def _is_last_birth(self, event: Event, *, others_serve: bool, is_storm: bool) -> bool:
        if event in (Event.DIED, Event.LINGERS):
            self._failed_births += 1
            return self._failed_births >= MAX_BIRTHS
        most = MAX_STORMY_BIRTHS if is_storm else MAX_KILLED_BIRTHS
        return event is Event.KILLED and self.births >= most and not others_serve

    @property
    def delay_s(self) -> float:
        """How long to wait before the next start."""
        return DELAYS_S[min(self.births, len(DELAYS_S)) - 1] if self.births else 0.0

    def looked(self, place: tuple[int, ...], seconds: float, *, is_busy: bool, is_stopped: bool) -> Instruction:
        """``seconds`` have passed, and it is at ``place`` now."""
        if self.state is State.CONDEMNED:
            self._lingers_s += seconds
            return self.happened(Event.LINGERS) if self._lingers_s >= LINGERS_S else Instruction.NOTHING
        if self.state in (State.ABSENT, State.GIVEN_UP) or place != self._place or not is_busy:
            self._place = place
            self._begin_anew()
            return Instruction.NOTHING
        self.still_s += seconds
        if is_stopped and self.still_s >= STOPPED_S:
            return self.happened(Event.STOPPED)
        if self.still_s >= self.timeout_s:
            return self.happened(Event.OVERDUE)
        if self.still_s >= self.warning_s and not self._warned:
            self._warned = True
            return self.happened(Event.LATE)
        return Instruction.NOTHING

    def _begin_anew(self) -> None:
        self.still_s, self._warned = 0.0, False
