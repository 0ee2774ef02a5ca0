"""Whether a slot is about to come home, so that none is to be made. Pure: looks at the ledger, and at who waits.

Who goes through a loader drops each batch when it has the next one: for a moment it has two. Where batches are large,
a worker that is done just then had better wait for that moment: to make a slot takes longer, and it is there for good.
"""

from __future__ import annotations

from swift_loader.orders.ledger import Holder, Ledger


class Homecoming:
    """Of one consumer's slots."""

    is_awaited = False
    """The consumer does nothing but wait for a delivery."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._most = 1
        """So many batches it had at most when it came for another."""
        self._is_steady = True
        """It had no more than that the last time: it drops one for each that it takes."""

    def takes(self) -> None:
        """The consumer takes a delivery, and has dropped what it will drop before that."""
        held = self._ledger.held_by(Holder.BATCH)
        self._is_steady, self._most = held <= self._most, max(held, self._most)

    def is_near(self, ready: int, ordered: int) -> bool:
        """Whether one comes so soon that it is worth waiting for; with nothing else to come, nothing is waited for.

        Whoever waits for it asks again when the consumer takes a delivery, drops one, or begins to wait.
        """
        if self._ledger.held_by(Holder.LEDGER):
            return False
        leased = self._ledger.held_by(Holder.BATCH)
        if self.is_awaited:
            return ready > 0 and leased > 0
        return self._is_steady and leased > self._most and ready + ordered > 0
