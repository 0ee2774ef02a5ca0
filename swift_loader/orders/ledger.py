"""Who holds each slot. Pure: events in, answers out.

A slot is held by exactly one of: the ledger (free), a worker (ordered), the pool (full), a batch (leased), or nobody
any more (lost). It moves only by the events below; a move that is none of them is a bug of ours and raises at once.

Called under the exchange's lock, by two parties: the telecom thread that serves the worker (`take`, `filled`, `expect`,
`given_back`, `lost`; `thrown_away` for a parcel that came too late), and who takes batches, the consumer's thread or
the landing thread (`landing`; `thrown_away` after a restart). `changed` is called by whichever of them enters next
after a lease was dropped: never by who dropped it, who may be anywhere.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum

#: While a batch is being made of a slot, this many leases stand for those that are not counted yet.
LANDING = 1 << 40


class Holder(Enum):
    """Who holds a slot."""

    LEDGER = "free"
    WORKER = "ordered"
    POOL = "full"
    BATCH = "leased"
    NOBODY = "lost"

    __hash__ = object.__hash__  # there is one of each; Enum's own is written in Python, and asked several times a batch


class LedgerError(AssertionError):
    """A slot was moved by somebody who does not hold it."""


@dataclass(slots=True)
class _Entry:
    holder: Holder
    nbytes: int
    leases: int = 0


class Ledger:
    """The slots of one consumer."""

    def __init__(self, budget_nbytes: int, max_slots: int) -> None:
        self.budget = budget_nbytes
        """What all slots may take."""
        self._max_slots = max_slots
        self._entries: dict[int, _Entry] = {}
        self._free: list[int] = []
        self._counts = dict.fromkeys(Holder, 0)
        self._nbytes = 0

    def take(self, room: int, known: Container[int]) -> int | None:
        """A slot for a new order, the one used last first; None if there is none and the budget allows no other.

        Among the last few, one that the worker has mapped already (``known``) goes first. From now on it is the
        worker's, though the order was not sent yet: should that die in between, the order stands in its book, and
        `given_back` follows.
        """
        free = self._free
        if not free:
            return self._add(room)
        at = len(free) - 1
        for back in range(1, min(4, len(free)) + 1):
            if free[-back] in known:
                at = len(free) - back
                break
        slot = free.pop(at)
        self._moved(slot, Holder.LEDGER, Holder.WORKER)
        return slot

    def has_room(self, room: int) -> bool:
        """Whether `take` would find a slot."""
        return bool(self._free) or self.may_add(room)

    def filled(self, slot: int, nbytes: int) -> None:
        """The worker has filled the slot, which is ``nbytes`` large now.

        Also where the order was taken back meanwhile: whoever finds that throws the slot away next.
        """
        entry = self._moved(slot, Holder.WORKER, Holder.POOL)
        self._nbytes += nbytes - entry.nbytes
        entry.nbytes = nbytes

    def expect(self, nbytes: int) -> None:
        """Batches are larger than was known: what workers are filling will take as much, and is counted as such."""
        for entry in self._entries.values():
            if entry.holder is Holder.WORKER and entry.nbytes < nbytes:
                self._nbytes += nbytes - entry.nbytes
                entry.nbytes = nbytes

    def landing(self, slot: int) -> None:
        """The slot's batch is being made of it. Views of it may come and go before all are counted."""
        self._moved(slot, Holder.POOL, Holder.BATCH).leases = LANDING

    def changed(self, slot: int, leases: int) -> None:
        """So many leases of the slot came or went; with none left, it is free.

        In any order: views may be dropped before `Lease.landed` has told how many there are, which `LANDING` makes up.
        """
        entry = self._held(slot, Holder.BATCH)
        entry.leases += leases
        if entry.leases < 0:
            raise LedgerError(f"slot {slot} was let go of more often than it was held")
        if entry.leases == 0:
            self._set_free(slot, entry)

    def given_back(self, slot: int) -> None:
        """The worker has answered without a batch, or is gone, and its process too: nobody writes there any more."""
        self._set_free(slot, self._held(slot, Holder.WORKER))

    def thrown_away(self, slot: int) -> None:
        """A full slot that nobody wants any more."""
        self._set_free(slot, self._held(slot, Holder.POOL))

    def lost(self, slot: int) -> None:
        """Its worker was given up and may still write into it: nobody has it again. Its room is given to others."""
        entry = self._moved(slot, Holder.WORKER, Holder.NOBODY)
        self._nbytes -= entry.nbytes

    def held_by(self, holder: Holder) -> int:
        """How many slots somebody holds."""
        return self._counts[holder]

    @property
    def busy_count(self) -> int:
        """How many slots are not free."""
        return len(self._entries) - len(self._free)

    @property
    def nbytes(self) -> int:
        """The size of all slots."""
        return self._nbytes

    def _add(self, room: int) -> int | None:
        if not self.may_add(room):
            return None
        count = len(self._entries)
        self._entries[count] = _Entry(Holder.WORKER, room)
        self._counts[Holder.WORKER] += 1
        self._nbytes += room
        return count

    def may_add(self, room: int) -> bool:
        """Whether another slot may be made, of this size."""
        count = len(self._entries)
        is_first = count == self._counts[Holder.NOBODY]
        return count < self._max_slots and (is_first or self._nbytes + room <= self.budget)

    def _moved(self, slot: int, source: Holder, target: Holder) -> _Entry:
        entry = self._held(slot, source)
        self._move(entry, target)
        return entry

    def _move(self, entry: _Entry, target: Holder) -> None:
        self._counts[entry.holder] -= 1
        self._counts[target] += 1
        entry.holder = target

    def _held(self, slot: int, holder: Holder) -> _Entry:
        entry = self._entries[slot]
        if entry.holder is not holder:
            raise LedgerError(f"slot {slot} is {entry.holder.value}, not {holder.value}")
        return entry

    def _set_free(self, slot: int, entry: _Entry) -> None:
        self._move(entry, Holder.LEDGER)
        self._free.append(slot)
