"""What is asked for just now: had from what is there, with what is coming anyway, or by requests of its own."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, NamedTuple

from swift_loader.errors import NoRoom
from swift_loader.fetcher.ahead import Ahead
from swift_loader.fetcher.choice import Range, coalesced, is_worth_a_range
from swift_loader.fetcher.counts import Counts
from swift_loader.fetcher.holdings import Holding, Holdings
from swift_loader.fetcher.room import ALIGNMENT
from swift_loader.fetcher.sets import ShardSet
from swift_loader.shards.upcoming import Terms
from swift_loader.stores.page import AT_ONCE


class Wanted(NamedTuple):
    """Bytes of a sample."""

    shard: int
    begin: int
    end: int
    sample: int
    """In the set; below 0 if that is not known."""


class _Busy(NamedTuple):
    nbytes: int = 0
    stretches: int = 0

    def has_room(self, more: _Busy, room_nbytes: int) -> bool:
        """Whether more may be asked for: two that each have half of all there is would wait for each other."""
        is_little = self.nbytes + more.nbytes <= room_nbytes // 2 and self.stretches + more.stretches <= AT_ONCE
        return is_little or not self.stretches


class Wishes:
    """Has what connections ask for come.

    Args:
        holdings: What there is.
        ahead: What comes by the plans.
        counts: What is counted.
        terms: What is fetched though it is not wanted.
    """

    def __init__(self, holdings: Holdings, ahead: Ahead, counts: Counts, terms: Terms) -> None:
        self._holdings, self._ahead, self._counts, self._terms = holdings, ahead, counts, terms
        self._turns = asyncio.Condition()
        self._busy = _Busy()
        """What is asked for and not answered yet."""
        self._ranges_s = 0.0
        """How long it took of late until ranges that were asked for together were there."""

    async def have(self, connection: Any, of: ShardSet, wanted: list[Wanted]) -> None:
        """Returns when all of it is there, and held until the connection goes on.

        Raises:
            Exception: if it cannot be had.
        """
        begun_s = monotonic()
        self._counts.waits += 1
        nbytes = sum(one.end - one.begin for one in wanted)
        room_nbytes = self._holdings.room.nbytes
        if nbytes + len(wanted) * ALIGNMENT > room_nbytes:
            text = f"a batch takes {nbytes / 1e6:,.1f} MB, and the fetcher's memory has {room_nbytes / 1e6:,.1f} MB: "
            raise NoRoom.of(f"{text}give it more (memory=), or take smaller batches", nbytes, room_nbytes)
        mine = _Busy(nbytes, len(wanted))
        async with self._turns:
            await self._turns.wait_for(lambda: self._busy.has_room(mine, room_nbytes))
            self._busy = _Busy(self._busy.nbytes + nbytes, self._busy.stretches + len(wanted))
        try:
            await self._had(connection, of, wanted)
        finally:
            waited_s = monotonic() - begun_s
            self._counts.wait_s += waited_s
            if (follower := self._ahead.of(connection)) is not None:
                follower.waited(connection, waited_s)
            self._busy = _Busy(self._busy.nbytes - nbytes, self._busy.stretches - len(wanted))
            async with self._turns:
                self._turns.notify_all()

    async def _had(self, connection: Any, of: ShardSet, wanted: list[Wanted]) -> None:
        alone, runs, waits = self._sorted(connection, of, wanted)
        coming = self._alone(connection, of, alone)
        if coming:
            begun_s = monotonic()
            await _all(coming)
            took_s = monotonic() - begun_s
            self._ranges_s = took_s if not self._ranges_s else (self._ranges_s + took_s) / 2
        await _all(waits)
        # What came by the plan is held from here on; if it is gone already, what is wanted of it is fetched alone.
        gone, waits = [], []
        for one in runs:
            found = self._holdings.find(of.key(one.shard), one.begin, one.end)
            if found is None:
                gone.append(Range(*one[:3]))
            else:
                found.holders.add(connection)
                waits += filter(None, [found.coming])
        await _all([*waits, *self._alone(connection, of, gone)])

    def drop(self, of: ShardSet, wanted: list[Wanted]) -> None:
        """It was damaged where it was copied to."""
        for one in wanted:
            self._counts.refetches += 1
            found = self._holdings.find(of.key(one.shard), one.begin, one.end)
            if found is not None and found.stretch is not None:
                if self._holdings.kept is not None:
                    self._holdings.kept.drop(of, one.shard, found.begin, found.end)
                self._holdings.let_go(found)

    def _sorted(
        self, connection: Any, of: ShardSet, wanted: list[Wanted]
    ) -> tuple[list[Range], list[Wanted], list[asyncio.Task[None]]]:
        """What is fetched alone; what comes with a run; and what is to be waited for."""
        alone: list[Range] = []
        runs: list[Wanted] = []
        waits: list[asyncio.Task[None]] = []
        alone_nbytes = queued_nbytes = 0
        for one in wanted:
            found = self._holdings.find(of.key(one.shard), one.begin, one.end)
            expected = None if found is not None else self._ahead.expecting(connection, one.sample)
            due_s = None
            if found is not None:
                due_s = self._due_s(of, found)
            elif expected is not None:
                due_s = self._ahead.due_s(of, *expected, queued_nbytes)
            nbytes = alone_nbytes + one.end - one.begin
            is_first = due_s is None and self._ahead.begins(connection, one.end - one.begin)
            is_alone = is_first or (found is None and expected is None)
            counts = self._counts
            if is_alone or is_worth_a_range(
                due_s, nbytes, counts.ranges_nbytes, counts.nbytes, self._ranges_s, self._terms
            ):
                alone.append(Range(*one[:3]))
                alone_nbytes = nbytes
            elif found is not None:
                found.holders.add(connection)
                waits += filter(None, [found.coming])
            elif expected is not None:
                queued_nbytes += int(expected[1].samples * of.sample_nbytes[one.shard])
                runs.append(one)
                waits.append(self._ahead.bring(*expected, is_wanted=True))
        return alone, runs, waits

    def _due_s(self, of: ShardSet, found: Holding) -> float | None:
        if found.stretch is not None or not found.uses:
            return 0.0
        expected_s = of.network.racing.expected_s(found.nbytes)
        return None if expected_s is None else max(0.0, expected_s - (monotonic() - found.since_s))

    def _alone(self, connection: Any, of: ShardSet, alone: list[Range]) -> list[asyncio.Task[None]]:
        fetched = [
            self._holdings.fetch(of, *one, holder=connection) for one in coalesced(alone, self._terms.gap_nbytes)
        ]
        self._counts.ranges += len(fetched)
        follower = self._ahead.of(connection)
        for each in fetched:
            each.payer = None if follower is None else follower.tally
        return [one.coming for one in fetched if one.coming is not None]


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    """Waits for all, which go on if nobody waits any more."""
    for task in tasks:
        await asyncio.shield(task)
