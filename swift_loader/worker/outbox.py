"""The worker's side of the channel: parcels of quick batches leave together.

A send that wakes the consumer costs both 12 us and more, as much as a third of a small batch. So the parcel of a batch
that took less than a millisecond waits for the next one if another batch is ordered and will, if it takes as long as
this one, be there within two milliseconds of the first that waits; for eleven others at most, which is how many are
ordered at a time, and fewer where they carry objects. A thread sees to it that a sample that blocks does not keep back
what is done: it looks rarely, since each time it takes the interpreter from the one that makes batches.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from swift_loader.wire import messages

if TYPE_CHECKING:
    from swift_loader.wire.channel import SocketChannel

_TOGETHER = 12
#: Objects of batches go with their parcels: with so many bytes of them together, these leave.
_MOST_NBYTES = 32 * 1024
_QUICK_NS, _PATIENCE_NS = 1_000_000, 2_000_000
_WATCH_S = 0.01


class Outbox:
    """Sends to the consumer."""

    def __init__(self, channel: SocketChannel) -> None:
        self._channel = channel
        self._waiting: list[bytes] = []
        self._due_ns = self._nbytes = 0
        """When what waits must leave, if something does; and how much it is."""
        self._lock = threading.Lock()
        self._something_waits = threading.Event()
        self._watcher: threading.Thread | None = None

    def send(self, datagram: bytes, fds: Sequence[int] = ()) -> None:
        """Sends at once, after what waits."""
        self.flush()
        self._channel.send(datagram, fds)

    @staticmethod
    def may_wait(made_ns: int) -> bool:
        """Whether the next batch, which will take as long as this one, is worth waiting for."""
        return made_ns < _QUICK_NS

    def send_soon(self, parcel: bytes, made_ns: int) -> None:
        """Sends together with others. The parcel brings no slot, and another order is in hand."""
        now_ns = time.perf_counter_ns()
        with self._lock:
            if not self._waiting:
                self._due_ns, self._nbytes = now_ns + _PATIENCE_NS, 0
            self._waiting.append(parcel)
            self._nbytes += len(parcel)
            is_full = len(self._waiting) >= _TOGETHER or self._nbytes >= _MOST_NBYTES
            leaves = is_full or now_ns + made_ns >= self._due_ns
        if leaves:
            self.flush()
        elif not self._something_waits.is_set():
            self._something_waits.set()
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="swift-outbox", daemon=True)
                self._watcher.start()

    @property
    def is_waiting(self) -> bool:
        """Whether something does."""
        return bool(self._waiting)

    def flush(self) -> None:
        """Sends what waits."""
        # Two threads come here, the worker's own and the watcher. The lock is held while sending: whichever has taken
        # the parcels sends them before the other, who finds none, goes on to send what came after.
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if waiting:
                self._channel.send(messages.join_parcels(waiting))

    def _watch(self) -> None:
        with contextlib.suppress(OSError):  # the consumer has gone; the worker's own thread hears of it too
            while self._something_waits.wait():
                time.sleep(_WATCH_S)
                # Read without the lock: what is due by an older figure is sent sooner than it need be, never later.
                if time.perf_counter_ns() > self._due_ns:
                    self.flush()
                self._something_waits.clear()
                # Looked at after the clearing: the worker may have put a parcel there in between, and found it set.
                if self._waiting:
                    self._something_waits.set()
