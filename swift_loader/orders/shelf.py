"""The slots that were made, and which workers have mapped them. Under the exchange's lock."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.orders.book import Book
    from swift_loader.wire.slot import Slot


class Shelf:
    """Those of one consumer, by their numbers."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._knowers: dict[int, set[Book]] = {}
        """Whose worker has mapped a slot; of some the worker is gone since, whose book says so."""
        self.nbytes = 0
        """Of all of them."""

    def __contains__(self, number: int) -> bool:
        return number in self._slots

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, number: int) -> Slot | None:
        """A slot, if it was made."""
        return self._slots.get(number)

    def __getitem__(self, number: int) -> Slot:
        return self._slots[number]

    def all(self) -> Collection[Slot]:
        """All of them."""
        return self._slots.values()

    def shows(self, number: int, book: Book) -> bool:
        """A worker is ordered to fill a slot: whether it is to be sent that too. From now on it knows it."""
        if number in book.known:
            return False
        book.known.add(number)
        self._knowers.setdefault(number, set()).add(book)
        return number in self._slots

    def put(self, number: int, slot: Slot, book: Book) -> Slot | None:
        """A worker has made a slot, which nobody else has seen; gives back the one that had the number before."""
        for knower in self._knowers.get(number, ()):
            if knower is not book:
                knower.known.discard(number)
        self._knowers[number] = {book}
        old = self._slots.get(number)
        self._slots[number] = slot
        self.nbytes += slot.nbytes - (0 if old is None else old.nbytes)
        return old

    def lose(self, number: int) -> Slot | None:
        """Nobody has the slot again; gives it back, if it was made."""
        self._knowers.pop(number, None)
        slot = self._slots.pop(number, None)
        self.nbytes -= 0 if slot is None else slot.nbytes
        return slot

    def clear(self) -> list[Slot]:
        """All go; gives them back."""
        slots = list(self._slots.values())
        self._slots.clear()
        self._knowers.clear()
        self.nbytes = 0
        return slots
