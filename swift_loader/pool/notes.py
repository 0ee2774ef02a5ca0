"""What the user should know of workers, though nothing is lost: told as warnings, by the consumer's own thread."""

from __future__ import annotations

import contextlib
import threading
from queue import Empty, SimpleQueue

from swift_loader.host.warn import warn_user


class Notes:
    """Texts that wait to be told."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[str] = SimpleQueue()
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def put(self, text: str) -> None:
        """To be told."""
        self._waiting.put(text)

    def put_once(self, text: str) -> None:
        """To be told, but for the second time: every worker may say the same."""
        with self._lock:
            if text in self._said:
                return
            self._said.add(text)
        self.put(text)

    def tell(self) -> None:
        """Warns of what waits."""
        while not self._waiting.empty():
            with contextlib.suppress(Empty):  # another thread, which closes the loader, has told of it
                warn_user(self._waiting.get_nowait())
