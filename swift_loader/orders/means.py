"""How much memory slots may take, as it turns out to be there; and what the user is told where that is little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swift_loader.errors import NoRoom
from swift_loader.host.memory import LEFT_NBYTES
from swift_loader.orders.ledger import Holder

if TYPE_CHECKING:
    from swift_loader.orders.ledger import Ledger

#: One that is handed out, one that the user still holds.
_SLOTS_BESIDE_WORKERS = 2


class Means:
    """Of one consumer's slots. Under the exchange's lock."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._hoped_for = ledger.budget

    @property
    def are_cut(self) -> bool:
        """Whether there were more slots, had memory not been short."""
        return self._ledger.budget < self._hoped_for

    def fit(self, made_nbytes: int, free: int) -> None:
        """Has no more slots made than there is memory for: workers and others have taken their own since the start."""
        self._ledger.budget = min(self._hoped_for, made_nbytes + max(0, free - LEFT_NBYTES))

    def no_room(self, batch_nbytes: int) -> NoRoom:
        """What to raise where the consumer holds all the memory that there is."""
        ledger = self._ledger
        return NoRoom.of(
            f"no memory for the next batch: {ledger.held_by(Holder.BATCH)} batches that were handed out are "
            f"still held, and with {ledger.nbytes:,} bytes they take the memory_budget of "
            f"{ledger.budget:,}. Keep fewer (clone what you need of them), or raise memory_budget",
            batch_nbytes,
            ledger.budget,
        )

    def told_few(self, batch_nbytes: int, workers: int) -> str | None:
        """What to tell the user, now that a first batch has come, if memory is too short to keep all workers busy."""
        wanted = workers + _SLOTS_BESIDE_WORKERS
        fitting = self._ledger.budget // batch_nbytes if batch_nbytes else wanted
        if fitting >= wanted:
            return None
        return (
            f"memory for {fitting} batches of {batch_nbytes:,} bytes is all that there is (memory_budget is "
            f"{self._ledger.budget:,}), and {workers} workers want {wanted}: some will wait. "
            "Take fewer workers or a smaller batch_size, or give the job more memory"
        )
