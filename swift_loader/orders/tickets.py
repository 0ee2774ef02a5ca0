"""What is to be made: the plan's steps as numbered tickets, through all epochs; and what became of each. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from swift_loader.plan.position import Position

if TYPE_CHECKING:
    from swift_loader.errors import FailureReport
    from swift_loader.plan.plan import Plan
    from swift_loader.wire.messages import Parcel
    from swift_loader.wire.slot import Slot


class Ticket(NamedTuple):
    """One batch to be made."""

    seq: int
    epoch: int
    step: int


class Holding(Protocol):
    """What a delivery brings: the memory that its batch lies in, held until all arrays on it are gone."""

    @property
    def room(self) -> Slot | None:
        """The slot; None for memory that holds this batch and never another."""
        ...

    @property
    def memory(self) -> Any:
        """Its bytes."""
        ...

    @property
    def views(self) -> dict[Any, Any]:
        """Where a stage may keep arrays on it, for the next batch in it."""
        ...

    def array(self, shape: tuple[int, ...], dtype: str, offset: int) -> Any:
        """A view that holds the memory."""
        ...

    def landed(self) -> None:
        """All arrays of the batch were made: from now on only they hold the memory."""
        ...


@dataclass(slots=True)
class Full:
    """A ticket was made."""

    ticket: Ticket
    parcel: Parcel
    worker: int
    came_ns: int
    slot_wait_ns: int = 0
    """The worker waited for this order, since there was no free slot."""
    hold: Holding | None = None
    """On its slot, from when it is taken until a batch is made of it."""
    laps: Any = None
    """What it took to land it, where that is measured."""


@dataclass(slots=True)
class Failed:
    """A ticket cannot be made."""

    ticket: Ticket
    report: FailureReport
    worker: int


Delivery: TypeAlias = Full | Failed


class Tickets:
    """The tickets of one consumer, each given once.

    Args:
        plan: Which samples make which batch.
        consumer: Whose.
        begins: Told of each epoch as it begins: the number of its first ticket, and how many there are.
    """

    def __init__(self, plan: Plan, consumer: int, begins: Callable[[int, int], None]) -> None:
        self.plan = plan
        self._consumer = consumer
        self._begins = begins
        self._next = Ticket(1, 0, 0)
        self._steps = 0
        self._given: frozenset[int] = frozenset()
        """Steps of the epoch that were handed out before the run was interrupted."""

    @property
    def next_seq(self) -> int:
        """The number of the next one; all before it were given."""
        return self._next.seq

    def __bool__(self) -> bool:
        """Whether there are any: a consumer may have no steps at all."""
        return self._steps > 0

    def turn_to(self, at: Position) -> None:
        """The next one is that of another step."""
        self._next = Ticket(self._next.seq, at.epoch, at.step)
        self._begin_epoch(at)

    def take(self) -> Ticket:
        """The next one."""
        ticket = self._next
        step = ticket.step + 1
        while step in self._given:
            step += 1
        if step < self._steps:
            self._next = Ticket(ticket.seq + 1, ticket.epoch, step)
        else:
            self._next = Ticket(ticket.seq + 1, ticket.epoch + 1, 0)
            self._begin_epoch(Position(ticket.epoch + 1))
        return ticket

    def _begin_epoch(self, at: Position) -> None:
        self._given = frozenset(at.ahead)
        self._steps = self.plan.step_count(at.epoch, self._consumer)
        self._begins(self._next.seq, at.left(self._steps))
