"""What wakes a telecom thread: a line whose orders are to be seen to, or all of them."""

from __future__ import annotations

import contextlib
from collections import deque

from swift_loader.host.bell import Bell


class Calls:
    """Those for one thread. All but `answered` is called from anywhere, a signal handler too: takes no lock."""

    def __init__(self) -> None:
        self.bell = Bell()
        self._rung: deque[int | None] = deque()

    def ring(self) -> None:
        """All lines of the thread are to be seen to."""
        self._rung.append(None)
        self.bell.ring()

    def ring_for(self, line: int) -> None:
        """One line is."""
        self._rung.append(line)
        self.bell.ring()

    def answered(self) -> set[int | None]:
        """What was rung for since the last time; with None among it, for all. Called by the thread itself.

        It has hushed the bell before: whoever rings from then on is seen here, or wakes it again.
        """
        rung: set[int | None] = set()
        with contextlib.suppress(IndexError):
            while True:
                rung.add(self._rung.popleft())
        return rung


class LineBell:
    """A line's bell: wakes the thread that serves it. May be rung from anywhere."""

    __slots__ = ("_calls", "_line")

    def __init__(self, calls: Calls, line: int) -> None:
        self._calls, self._line = calls, line

    def ring(self) -> None:
        """The line may be given orders."""
        self._calls.ring_for(self._line)
