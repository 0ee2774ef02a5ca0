"""Parcels of many workers -> one stream. Pure.

In order: a parcel waits until all before it have come. As they come: a parcel waits only while an earlier epoch is
not whole, since an epoch is what the user asked for.

Called under the exchange's lock: `epoch` and `add` by telecom threads (`epoch` before the first ticket of that epoch is
ordered, so before anything of it can come), `restart` by the consumer's thread. A number comes once: of an order that
was taken back, or made again after a death, the dispatch lets only the valid answer through.
"""

from __future__ import annotations

from bisect import bisect
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Merge(Protocol[T]):
    """Takes parcels as they come and gives them out as they may be delivered."""

    def epoch(self, first: int, count: int) -> None:
        """The tickets of the next epoch are those from ``first`` on, ``count`` of them."""
        ...

    def add(self, seq: int, item: T) -> list[T]:
        """A parcel has come, or what was given up in its place; gives back what may be delivered now, in order."""
        ...

    def restart(self, seq: int) -> list[T]:
        """What comes next is ``seq``; gives back what was waiting and is void now: the caller frees its slots.

        Nothing below ``seq`` is added any more: the words of those orders were cleared before, under the same lock.
        """
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
        self._ends: list[int] = []
        """Of the epoch that is given out, and of those that have begun since."""
        self._waiting: dict[int, T] = {}
        self._of_epoch: dict[int, list[int]] = {}
        """The numbers of those that wait, as they came, by the ends of their epochs."""
        self._given: set[int] = set()
        self.next_seq = 1

    def epoch(self, first: int, count: int) -> None:
        """See `Merge`."""
        self._ends.append(first + count)

    def add(self, seq: int, item: T) -> list[T]:
        """See `Merge`."""
        self._waiting[seq] = item
        self._of_epoch.setdefault(self._ends[bisect(self._ends, seq)], []).append(seq)
        ready: list[T] = []
        while self._ends:
            end = self._ends[0]
            for may in self._of_epoch.pop(end, ()):
                ready.append(self._waiting.pop(may))
                self._given.add(may)
            while self.next_seq in self._given:
                self._given.remove(self.next_seq)
                self.next_seq += 1
            if self.next_seq < end:
                break
            self._ends.pop(0)
        return ready

    def restart(self, seq: int) -> list[T]:
        """See `Merge`."""
        void = list(self._waiting.values())
        self._waiting.clear()
        self._of_epoch.clear()
        self._given.clear()
        self._ends.clear()
        self.next_seq = seq
        return void
