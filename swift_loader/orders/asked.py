"""Tickets that somebody asks for, one by one, in any order: what a server makes. Pure. Under the exchange's lock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from swift_loader.orders.tickets import Ticket

if TYPE_CHECKING:
    from swift_loader.plan.position import Position


class Asked:
    """See `swift_loader.orders.tickets.Tickets`, for which this stands."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int]] = deque()
        self.next_seq = 1

    def ask(self, epoch: int, step: int) -> None:
        """This batch is wanted, after all that were asked for before."""
        self._waiting.append((epoch, step))

    def __bool__(self) -> bool:
        """Whether anything is wanted now."""
        return bool(self._waiting)

    def turn_to(self, _at: Position) -> None:
        """Nothing: each ticket names its place."""

    def take(self) -> Ticket:
        """The next one."""
        ticket = Ticket(self.next_seq, *self._waiting.popleft())
        self.next_seq += 1
        return ticket
