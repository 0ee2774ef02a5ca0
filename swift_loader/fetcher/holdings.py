"""What has been fetched and is in memory, and what is coming: each stretch is asked for once, whoever wants it.

A stretch is let go of when no follower needs it any more and nobody has asked for it just now; those of sets that have
room as a whole stay, for the next epoch. Where there is no room, others go before their time, those first that are
needed last: whoever needs them again asks again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol, TypeAlias

from swift_loader.errors import NoRoom
from swift_loader.fetcher.counts import Counts, Tally
from swift_loader.fetcher.kept import Kept
from swift_loader.fetcher.room import Room
from swift_loader.fetcher.sets import ShardSet
from swift_loader.fetcher.waiting import happens
from swift_loader.host.memory import free_nbytes
from swift_loader.stores.page import CELLS, Stretch

#: One request is of so many bytes at most.
PART_NBYTES = 8 << 20
_LOOK_S = 0.25
_HELD_S = 0.25
#: Sets that take no more than this part of the room stay in it: filling fresh memory costs more than it brings, if what
#: lies there has to go before it is used again.
_STAYING_PART = 0.5
#: Where less memory than this part of the room is free on the host, what only stays is given back.
_SCARCE_PART = 0.25

Step: TypeAlias = tuple[int, int]


class Holder(Protocol):
    """A connection that asks for stretches."""

    answered_s: float
    """Since when it has had what it asked for; 0 as long as it waits."""


@dataclass(eq=False)
class Holding:
    """A stretch of a shard that is there, or coming."""

    key: int
    begin: int
    end: int
    uses: dict[Any, tuple[Step, Step]] = field(default_factory=dict)
    """Of each follower that needs it, the first and the last step."""
    holders: set[Holder] = field(default_factory=set)
    """Connections that have asked for it just now."""
    stays: bool = False
    """Though nobody needs it now."""
    is_wanted: bool = False
    """Somebody waits for it, and not only the plan."""
    samples: tuple[int, int] = (0, 0)
    """Of the set, those that it has: the first, and behind the last. None where it is no run of the plan."""
    payer: Tally | None = None
    """Of whom it is counted that it came: who needed it first."""
    stretch: Stretch | None = None
    coming: asyncio.Task[None] | None = None
    since_s: float = field(default_factory=monotonic)

    @property
    def is_used(self) -> bool:
        """Whether somebody needs it."""
        return bool(self.uses or self.holders or self.coming)

    def may_go(self, *, is_urgent: bool) -> bool:
        """Whether nobody waits for it, or is about to copy from it; those who have had time to do so ask again."""
        now = monotonic()
        return all(is_urgent and one.answered_s and now - one.answered_s > _HELD_S for one in self.holders)

    @property
    def nbytes(self) -> int:
        """Of it."""
        return self.end - self.begin


class Holdings:
    """All stretches.

    Args:
        room: The memory.
        counts: What is counted.
        kept: What is kept on a disk.
    """

    def __init__(self, room: Room, counts: Counts, kept: Kept | None) -> None:
        self.room, self._counts, self.kept = room, counts, kept
        self._by_key: dict[int, list[Holding]] = {}
        self._cells = list(range(CELLS))
        self._generation = 0
        self.changed = asyncio.Event()
        """Something was let go of, or has come."""

    def stays(self, of: ShardSet) -> bool:
        """Whether what has come of a set stays, for the next epoch."""
        return of.catalog.nbytes <= _STAYING_PART * self.room.nbytes

    def find(self, key: int, begin: int, end: int) -> Holding | None:
        """What has these bytes of a shard, or will have them."""
        found = None
        for one in self._by_key.get(key, ()):
            if one.begin <= begin and end <= one.end:
                if one.stretch is not None:
                    return one
                found = found or one
        return found

    def with_samples(self, key: int, first: int, behind: int) -> list[Holding]:
        """The runs that have some of these samples, or will."""
        return [one for one in self._by_key.get(key, ()) if one.samples[0] < behind and first < one.samples[1]]

    def missing(self, key: int, first: int, behind: int) -> list[tuple[int, int]]:
        """What of these samples no run has, nor will."""
        found: list[tuple[int, int]] = []
        for begin, end in sorted(one.samples for one in self.with_samples(key, first, behind)):
            if first < begin:
                found.append((first, begin))
            first = max(first, end)
        return found + [(first, behind)] * (first < behind)

    def all(self) -> list[Holding]:
        """Each of them."""
        return [one for ones in self._by_key.values() for one in ones]

    def fetch(
        self, of: ShardSet, shard: int, begin: int, end: int, *, holder: Any = None, run: bool = False
    ) -> Holding:
        """Has these bytes come.

        Args:
            of: The set.
            shard: Which of its shards.
            begin: The first byte.
            end: Behind the last one.
            holder: The connection that waits for them; those of the plan are waited for by none.
            run: Whether they are one of the plan's runs, all of it: those may be kept.
        """
        one = Holding(of.key(shard), begin, end, stays=run and self.stays(of))
        if holder is not None:
            one.holders.add(holder)
        self._by_key.setdefault(one.key, []).append(one)
        one.coming = asyncio.ensure_future(self._come(one, of, shard, run=run))
        return one

    async def _come(self, one: Holding, of: ShardSet, shard: int, *, run: bool) -> None:
        offset = cell = None
        try:
            offset = await self._place(one)
            cell = self._cells.pop()
            if not (run and self.kept is not None and await self._from_kept(one, of, shard, offset)):
                await self._from_network(one, of, shard, offset)
                self._counts.ranges_nbytes += 0 if run else one.nbytes
                if one.payer is not None:
                    one.payer.nbytes += one.nbytes
                if run and self.kept is not None:
                    await self.kept.keep(of, shard, one.begin, self.room.view(offset, one.nbytes))
            self._generation += 1
            one.stretch = Stretch(cell, self._generation, one.begin, one.end, offset)
            self.room.page.tell(one.stretch, one.key)
        except BaseException:
            if offset is not None:
                self.room.give_back(offset, one.nbytes)
            if cell is not None:
                self._cells.append(cell)
            self._forget(one)
            raise
        finally:
            one.coming = None
            self._tell_changed()

    async def _from_network(self, one: Holding, of: ShardSet, shard: int, offset: int) -> None:
        # Runs of about one part's size are asked for at once, not as a part and a rest.
        step = one.nbytes if one.nbytes <= 2 * PART_NBYTES else PART_NBYTES

        async def bring(begin: int) -> None:
            end = min(begin + step, one.end)
            await of.part(shard, begin, end, self.room.view(offset + begin - one.begin, end - begin))

        coming = [asyncio.ensure_future(bring(begin)) for begin in range(one.begin, one.end, step)]
        try:
            await asyncio.gather(*coming)
        finally:
            for each in coming:  # what one of them has failed of, the others are not wanted for
                each.cancel()

    async def _from_kept(self, one: Holding, of: ShardSet, shard: int, offset: int) -> bool:
        assert self.kept is not None
        data = await self.kept.load(of, shard, one.begin, one.end)
        if data is None:
            return False
        self.room.write(offset, data)
        self._counts.hits_kept += 1
        return True

    async def _place(self, one: Holding) -> int:
        if one.nbytes > self.room.nbytes:
            text = (
                f"{one.nbytes / 1e6:,.0f} MB are wanted at once, and the fetcher has {self.room.nbytes / 1e6:,.0f} MB: "
            )
            raise NoRoom.of(f"{text}give it more (memory=), or take smaller batches", one.nbytes, self.room.nbytes)
        while True:
            offset = self.room.take(one.nbytes) if self._cells else None
            if offset is not None:
                return offset
            if not self._make_room(one.nbytes, is_urgent=bool(one.holders) or one.is_wanted):
                await happens(self.changed, _LOOK_S)

    def _make_room(self, nbytes: int, *, is_urgent: bool) -> bool:
        """Lets go of one stretch that nobody has just asked for; whether there was one."""
        there = [one for one in self.all() if one.stretch is not None and one.may_go(is_urgent=is_urgent)]
        unused = [one for one in there if not one.uses]
        if unused:
            # What came first stays, as far as that leaves holes that are large enough.
            fit = [one for one in unused if one.stretch and self.room.fits_at(one.stretch.offset, one.nbytes, nbytes)]
            self.let_go(max(fit or unused, key=lambda one: one.since_s))
            return True
        if not is_urgent or not there:
            return False
        self.let_go(max(there, key=lambda one: max((last for _, last in one.uses.values()), default=(0, 0))))
        self._counts.evicted_in_use += 1
        return True

    def let_go(self, one: Holding) -> None:
        """It is there no more; whoever copies from it just now will see that."""
        stretch = one.stretch
        if stretch is None:
            return
        self.room.page.forget(stretch.cell)
        one.stretch = None
        self._cells.append(stretch.cell)
        self.room.give_back(stretch.offset, one.nbytes)
        self._forget(one)
        self._tell_changed()

    def release(self, holder: Any) -> None:
        """A connection is done with what it had asked for."""
        for one in self.all():
            if holder in one.holders:
                one.holders.discard(holder)
                self._unused(one)

    def passed(self, follower: Any, low: Step | None) -> None:
        """A follower has gone on to that step; None: there is none any more."""
        for one in self.all():
            use = one.uses.get(follower)
            if use is not None and (low is None or use[1] < low):
                del one.uses[follower]
                self._unused(one)

    def _unused(self, one: Holding) -> None:
        if not one.uses and not one.holders and not one.stays:
            self.let_go(one)

    def used(self) -> tuple[int, int]:
        """How many stretches are needed, and what they take: what only stays goes where there is no room."""
        sizes = [one.nbytes for one in self.all() if one.is_used]
        return len(sizes), sum(sizes)

    def spare_the_host(self) -> None:
        """Gives memory back that nobody needs, where there is little left on the host."""
        staying = [one for one in self.all() if not one.is_used]
        if not staying or free_nbytes() > _SCARCE_PART * self.room.nbytes:
            return
        for one in staying:
            if one.stretch is not None:
                offset = one.stretch.offset
                self.let_go(one)
                self.room.return_to_system(offset, one.nbytes)

    def _forget(self, one: Holding) -> None:
        ones = self._by_key.get(one.key, [])
        if one in ones:
            ones.remove(one)
        if not ones:
            self._by_key.pop(one.key, None)

    def _tell_changed(self) -> None:
        self.changed.set()
