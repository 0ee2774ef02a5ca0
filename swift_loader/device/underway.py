"""What copies under way still read: memory of slots, held until the device says that it has read it.

The device reads behind Python's back. A slot whose arrays are dropped goes home and is filled anew, so they are kept
here until the event behind the copies has fired.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_loader.device.stage import Array, Cargo, Event


class Underway:
    """Added to by any thread, looked through by one."""

    def __init__(self) -> None:
        self._held: deque[tuple[Event, Any]] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, event: Event, read: Any) -> None:
        """Holds ``read`` until ``event`` has fired."""
        self._held.append((event, read))

    def let_go(self) -> None:
        """Drops what was read; does not wait."""
        while self._held and self._held[0][0].query():
            self._held.popleft()

    def settle(self, leave: int = 0) -> None:
        """Waits until at most ``leave`` are under way; drops what was read."""
        while len(self._held) > leave:
            self._held[0][0].synchronize()
            self._held.popleft()

    def end(self) -> None:
        """Waits for the last time. A device that is broken reads nothing more, and has told so whoever used it."""
        with contextlib.suppress(RuntimeError):
            self.settle()
        self._held.clear()


def held_arrays(cargo: Cargo) -> list[Array]:
    """The arrays on the slot that will be made of ``cargo``, as they are made.

    Not to be found in the batch later: a user's function may put other things in their places.
    """
    arrays: list[Array] = []
    hold = cargo.hold

    def noted(shape: tuple[int, ...], dtype: str, offset: int) -> Array:
        array = hold(shape, dtype, offset)
        arrays.append(array)
        return array

    cargo.hold = noted
    return arrays
