"""What a pool looks like from outside: its workers, its slots; and who looks on.

Read without the pool's lock where a number that is a moment old will do. Knows nothing of what is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from swift_loader.telemetry.board import WorkerShown

if TYPE_CHECKING:
    from swift_loader.orders.exchange import Exchange
    from swift_loader.pool.line import Line

#: To be called with what a thread did, from when to when.
Lane: TypeAlias = Callable[[tuple[str, int, int]], None]


class Onlooker(Protocol):
    """Who looks on while a pool works, and changes nothing. Called by telecom threads, several at a time."""

    def heard(self, worker: int, what: str) -> None:
        """What became of a worker."""
        ...

    def lost(self, worker: int, what: str) -> None:
        """The same for one that has died."""
        ...

    def ticked(self) -> None:
        """Something may have changed: four times a second while anything is being made."""
        ...

    def lane_of(self, thread: str) -> Lane | None:
        """Where a thread is to tell what it does; None if nobody wants to know. Asked once, as the thread begins."""
        ...


class Nobody:
    """Who looks on where nobody does."""

    def heard(self, worker: int, what: str) -> None:
        """See `Onlooker`."""

    def lost(self, worker: int, what: str) -> None:
        """See `Onlooker`."""

    def ticked(self) -> None:
        """See `Onlooker`."""

    def lane_of(self, _thread: str) -> Lane | None:
        """See `Onlooker`."""
        return None


class View:
    """One pool, seen from outside."""

    def __init__(
        self, lines: Sequence[Line], exchange: Exchange, control_fd: int, servers: Mapping[int, str] | None = None
    ) -> None:
        self._lines = lines
        self._exchange = exchange
        self.control_fd = control_fd
        self._servers = servers or {}

    def workers(self) -> list[WorkerShown]:
        """All workers, as they are now."""
        return [_shown(line, self._servers.get(line.number, "")) for line in self._lines]

    def slots(self) -> dict[str, int]:
        """How many slots there are, by who holds them, and their bytes."""
        return {name: int(value) for name, value in self._exchange.statistics().items()}

    @property
    def ready_count(self) -> int:
        """Batches that wait for the consumer."""
        dispatch = self._exchange.dispatch
        return 0 if dispatch is None else dispatch.stock.ready_count

    @property
    def ready_most(self) -> int | None:
        """How many of them there should be; None while that is not known."""
        dispatch = self._exchange.dispatch
        return None if dispatch is None else dispatch.stock.ready_most


def _shown(line: Line, server: str) -> WorkerShown:
    cell, process = line.cell, line.process
    index = cell.index
    return WorkerShown(
        number=line.number,
        pid=0 if process is None else process.pid,
        state=line.policy.state.value,
        stage=cell.stage,
        index=-1 if index is None else index,
        ordered=len(line.book.outstanding),
        unmerged=line.book.unmerged,
        still_s=round(line.policy.still_s, 1) if line.is_watched else 0.0,  # it may be of orders that are done
        deaths=line.deaths,
        last_death=line.last_death[:300],
        server=server,
        transit_s=round(line.book.transit_ns / 1e9, 6),
    )
