"""What a server says on one connection: whole frames, by any thread; and that it is there, where it says nothing."""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING

from swift_loader.net.frames import BEAT
from swift_loader.net.link import BEAT_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swift_loader.net.link import Link


class Voice:
    """Of one connection.

    Args:
        link: The connection.
        patience_s: For so long may the other end take nothing of what is sent to it.
    """

    def __init__(self, link: Link, patience_s: float) -> None:
        self._link = link
        self._patience_s = patience_s
        self._turn = threading.Lock()
        self._said_s = 0.0

    def say(self, parts: Sequence[bytes | memoryview], fd: int | None = None) -> None:
        """Sends a frame, and a descriptor beside its first part.

        Raises:
            LinkLost: if it cannot.
        """
        with self._turn:
            if fd is not None:
                self._link.send_with_file(bytes(parts[0]), fd, self._patience_s)
                parts = parts[1:]
            self._link.send(parts, self._patience_s)
            self._said_s = time.monotonic()

    def beat(self) -> None:
        """Says that there is somebody, unless more than that is being said, or was just now. Raises as `say` does."""
        if time.monotonic() - self._said_s < BEAT_S or not self._turn.acquire(blocking=False):
            return
        try:
            if self._link.wait(select.POLLOUT, 0.0):
                self._link.say(BEAT)
                self._said_s = time.monotonic()
        finally:
            self._turn.release()
