"""Waiting for something to happen, but not for ever."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


async def happens(event: asyncio.Event, wait_s: float) -> None:
    """Returns when it does, or after so long; from then on it is awaited anew."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), wait_s)
    event.clear()


class Gate:
    """Lets so many be at something at once, in the order in which they came.

    Args:
        limit: How many; may be set anew at any time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._inside = 0.0
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether who comes now has to wait."""
        return bool(self._waiting) or self._inside >= self.limit

    def ask(self, weight: float = 1.0) -> asyncio.Future[None]:
        """Asks for a place; what is light takes less of one. It is there when that is done, and to be left."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_full:
            self._waiting.append((weight, turn))
        else:
            self._inside += weight
            turn.set_result(None)
        return turn

    def leave(self, turn: asyncio.Future[None], weight: float = 1.0) -> None:
        """A place is free, if there was one."""
        if turn.cancelled() or not turn.done():
            turn.cancel()
            return
        self._inside -= weight
        while self._waiting and self._inside < self.limit:
            other, next_turn = self._waiting.popleft()
            if not next_turn.done():
                self._inside += other
                next_turn.set_result(None)
