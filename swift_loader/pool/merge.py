"""Parcels of many workers -> one stream. Pure.

In order: a parcel waits until all before it have come. As they come: a parcel waits only while an earlier epoch is
not whole, since an epoch is what the user asked for.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Merge(Protocol[T]):
    """Takes parcels as they come and gives them out as they may be delivered."""

    def epoch(self, first: int, count: int) -> None:
        """The tickets of the next epoch are those from ``first`` on, ``count`` of them."""
        ...

    def add(self, seq: int, item: T) -> list[T]:
        """A parcel has come; gives back what may be delivered now."""
        ...

    def restart(self, seq: int) -> list[T]:
        """What comes next is ``seq``; gives back what was waiting and is void now."""
        ...

    @property
    def next_seq(self) -> int:
        """All before this one were given out."""
        ...


class InOrder(Generic[T]):
    """Merges in step order."""

    def __init__(self) -> None:
        self._waiting: dict[int, T] = {}
        self.next_seq = 1

    def epoch(self, first: int, count: int) -> None:
        """See `Merge`; the order of the numbers says all."""

    def add(self, seq: int, item: T) -> list[T]:
        """See `Merge`."""
        self._waiting[seq] = item
        ready = []
        while (found := self._waiting.pop(self.next_seq, None)) is not None:
            ready.append(found)
            self.next_seq += 1
        return ready

    def restart(self, seq: int) -> list[T]:
        """See `Merge`."""
        void = list(self._waiting.values())
        self._waiting.clear()
        self.next_seq = seq
        return void


class AsTheyCome(Generic[T]):
    """Merges by epochs only."""

    def __init__(self) -> None:
        self._epochs: list[tuple[int, int]] = []
        self._waiting: dict[int, T] = {}
        self._given: set[int] = set()
        self.next_seq = 1

    def epoch(self, first: int, count: int) -> None:
        """See `Merge`."""
        self._epochs.append((first, first + count))

    def add(self, seq: int, item: T) -> list[T]:
        """See `Merge`."""
        self._waiting[seq] = item
        ready: list[T] = []
        while self._epochs:
            end = self._epochs[0][1]
            for may in [waiting for waiting in self._waiting if waiting < end]:
                ready.append(self._waiting.pop(may))
                self._given.add(may)
            while self.next_seq in self._given:
                self._given.remove(self.next_seq)
                self.next_seq += 1
            if self.next_seq < end:
                break
            self._epochs.pop(0)
        return ready

    def restart(self, seq: int) -> list[T]:
        """See `Merge`."""
        void = list(self._waiting.values())
        self._waiting.clear()
        self._given.clear()
        self._epochs.clear()
        self.next_seq = seq
        return void
