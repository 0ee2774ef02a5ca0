"""Who serves a pool: threads that come and leave, of which the last one puts the lights out."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from swift_loader.errors import LoaderClosed

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSED_AT_START = "the loader was closed while it started"


class Lights:
    """Counts those who serve.

    Args:
        put_out: Called once, when nobody serves any more: by the last one to leave, or by who closes a pool in which
            nobody has begun.
    """

    closing = False
    """All is to end: written by whoever closes, who takes no lock; read by all."""

    def __init__(self, put_out: Callable[[], None]) -> None:
        self._put_out: Callable[[], None] | None = put_out
        self._lock = threading.Lock()
        self._count = 0

    def comes(self) -> None:
        """Another one is to serve. Called by who starts it.

        Raises:
            LoaderClosed: if it comes too late.
        """
        with self._lock:
            self._count += 1
        if self.closing:  # asked only now: `close` says so first, and then asks whether anybody serves
            self.leaves()
            raise LoaderClosed(CLOSED_AT_START)

    def leaves(self) -> None:
        """One serves no more. Called by itself, as the last that it does."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._go_out()

    def go_out(self) -> None:
        """Puts the lights out, unless somebody serves, who does it then. Called by who closes; takes no lock."""
        if self._count == 0:
            self._go_out()

    def _go_out(self) -> None:
        # It knows the pool, which knows this: with the circle cut, all goes as soon as nobody needs it.
        put_out, self._put_out = self._put_out, None
        if put_out is not None:
            put_out()
