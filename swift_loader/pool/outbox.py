"""The worker's side of the channel: parcels of quick batches leave together.

A send that wakes the consumer costs the worker 12 us, as much as a third of a small batch. So a parcel waits for the
next ones while more such batches are ordered: for three others or 200 us, which the maker watches between samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swift_loader.pool import messages
from swift_loader.pool.fetch import NEVER

if TYPE_CHECKING:
    from swift_loader.pool.channel import SocketChannel

_TOGETHER = 4
_PATIENCE_NS = 200_000


class Outbox:
    """Sends to the consumer."""

    def __init__(self, channel: SocketChannel) -> None:
        self._channel = channel
        self._waiting: list[bytes] = []
        self.due_ns = NEVER
        """When what waits must leave."""

    def send(self, datagram: bytes, fds: Sequence[int] = ()) -> None:
        """Sends at once, after what waits."""
        self.flush()
        self._channel.send(datagram, fds)

    def send_soon(self, parcel: bytes, now_ns: int) -> None:
        """Sends together with others. The parcel has no attachment, and another order is in hand."""
        self._waiting.append(parcel)
        if len(self._waiting) >= _TOGETHER or now_ns >= self.due_ns:
            self.flush()
        elif self.due_ns == NEVER:
            self.due_ns = now_ns + _PATIENCE_NS

    def flush(self) -> None:
        """Sends what waits."""
        if self._waiting:
            self._channel.send(messages.join_parcels(self._waiting))
            self._waiting.clear()
        self.due_ns = NEVER
