"""The queue of what the consumer may take: deliveries in their order, and errors that end all."""

from __future__ import annotations

from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import TypeAlias

from swift_loader.orders.tickets import Delivery

Taken: TypeAlias = "Delivery | BaseException"


class Ready:
    """That of one consumer. Put under the exchange's lock, in order; waited for by the consumer's thread without it."""

    def __init__(self) -> None:
        self.first: Delivery | None = None
        """The very first delivery."""
        self._queue: SimpleQueue[Taken] = SimpleQueue()
        self.first_valid = 0
        """Deliveries below this number are void."""

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """These may be taken."""
        for delivery in deliveries:
            self.first = self.first or delivery
            self._queue.put(delivery)

    def fail(self, error: BaseException) -> None:
        """Nothing more is to come. Called by anybody; takes no lock."""
        self._queue.put(error)

    def get(self, timeout_s: float) -> Taken | None:
        """The next one; None if nothing came in time."""
        try:
            return self._queue.get(timeout=timeout_s) if timeout_s else self._queue.get_nowait()
        except Empty:
            return None

    def begin_anew(self, first_valid: int) -> list[Delivery]:
        """What is below this number is void; gives back what was ready. Errors stay: wherever one asks for next."""
        self.first_valid = first_valid
        found: list[Delivery] = []
        while (one := self.get(0.0)) is not None:
            if not isinstance(one, BaseException):
                found.append(one)
        return found
