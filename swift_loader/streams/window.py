"""What was made for a client and it has not said that it has: some of it sent, the rest to be."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from swift_loader.net.frames import FAILURE, acknowledged_together, write_head


@dataclass(slots=True)
class Item:
    """Something for the client."""

    kind: int
    epoch: int
    meta: memoryview | bytes
    bulk: memoryview
    number: int = 0
    """Its place among all that was sent; 0 before that."""

    def parts(self) -> list[memoryview]:
        """What is sent."""
        head = write_head(self.kind, len(self.meta), self.number, self.bulk.nbytes)
        return [memoryview(head + bytes(self.meta)), self.bulk]


class Window:
    """All that is held for one client, in its order.

    Args:
        hwm: How many items are made ahead.
    """

    def __init__(self, hwm: int) -> None:
        self.hwm = hwm
        self.sent: deque[Item] = deque()
        self.ready: deque[Item] = deque()
        self._number = 0

    def has_room(self) -> bool:
        """Whether more is to be made. A client says only now and then what it has: so much is held beside."""
        return len(self.sent) + len(self.ready) < self.hwm + acknowledged_together(self.hwm)

    def may_send(self) -> bool:
        """Whether there is something that the client has room for: more may have been made before it came."""
        return bool(self.ready) and len(self.sent) < self.hwm + acknowledged_together(self.hwm)

    def send(self) -> Item:
        """The next item, with its number."""
        self._number += 1
        item = self.ready.popleft()
        item.number = self._number
        self.sent.append(item)
        return item

    def forget_until(self, number: int) -> None:
        """The client has these."""
        while self.sent and self.sent[0].number <= number:
            self.sent.popleft()

    def forget_before(self, epoch: int) -> None:
        """The client is at this epoch: what is left of those before it is not sent any more."""
        self.ready = deque(item for item in self.ready if item.epoch >= epoch or item.kind == FAILURE)
