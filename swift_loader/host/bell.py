"""A descriptor that wakes a poll."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable


class Bell:
    """Rung from any thread, signal handler or finalizer: ringing takes no lock.

    The descriptor is closed when nobody can ring any more, not before: its number might be another file's by then.
    """

    __slots__ = ("fd",)

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        """Makes the descriptor readable."""
        os.eventfd_write(self.fd, 1)

    def hush(self) -> None:
        """Makes it wait for the next ring."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)  # given, since at the very end of an interpreter the modules' names are gone
