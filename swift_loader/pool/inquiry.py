"""Where a worker that stands still is: it is asked, writes down what its threads are at, and that is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.wire.page import Cell
    from swift_loader.wire.stacks import Stacks

#: A worker that is asked has written its answer after the first of these; after the second it is not waited for.
_WRITES_S, _ANSWERS_S = 0.5, 2.0


class Inquiry:
    """Of one line's workers. The telecom thread alone; the worker writes the stacks."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self.stacks: Stacks | None = None
        """Where the worker writes them."""
        self._asked_s = 0.0
        """So long ago."""
        self.begin()

    def begin(self) -> None:
        """Another worker comes."""
        self.is_open = False
        """It was asked, and what it wrote was not read yet."""
        self.last_stack = ""

    def ask(self) -> bool:
        """The worker is to say where it stands; whether it can be asked that yet."""
        self.is_open, self._asked_s, self.last_stack = True, 0.0, ""
        return self._cell.can_be_asked

    def read(self) -> None:
        """Keeps what the worker has written since it was looked at."""
        self.is_open = False
        if self.stacks is not None:
            self.last_stack = self.stacks.fresh() or self.last_stack

    def is_answered(self, seconds: float, *, is_killed: bool) -> bool:
        """``seconds`` have passed since it was asked, or since this was: whether what it has written is to be told."""
        self._asked_s += seconds
        if self._asked_s < _WRITES_S and not is_killed:
            return False
        may_answer = self._cell.can_be_asked and not is_killed and self._asked_s < _ANSWERS_S
        self.read()
        self.is_open = may_answer and not self.last_stack
        return not self.is_open
