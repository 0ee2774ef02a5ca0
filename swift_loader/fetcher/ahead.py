"""What the plans need is fetched before it is asked for: what is needed first, first, as far as there is room."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from swift_loader.fetcher.counts import Counts
from swift_loader.fetcher.followers import Follower, Wanted
from swift_loader.fetcher.holdings import Holding, Holdings
from swift_loader.fetcher.sets import ShardSet
from swift_loader.fetcher.waiting import Gate, happens
from swift_loader.stores.page import CELLS

#: Requests at once, to begin with; and the bounds.
_AT_ONCE, _LEAST, _MOST = 8, 4, 32
_LOOK_S = 0.5
#: So much is fetched of what is not needed just now, and at most this share of the room.
AHEAD_NBYTES, _AHEAD_SHARE = 256 << 20, 0.5
#: Others that wait go first, so long.
_STAND_BACK_S = 0.4
#: When so much of another epoch was asked for, its runs are fetched: requests for single samples cost more.
_MOST_TRIED = 32 << 20
#: What is smaller takes less of a place among the requests, down to this.
_PLACE_NBYTES, _LEAST_PLACE = 4 << 20, 1 / 8


class Ahead:
    """Fetches for all followers."""

    def __init__(self, holdings: Holdings, counts: Counts) -> None:
        self._holdings, self._counts = holdings, counts
        self.followers: dict[Any, Follower] = {}
        self._wake = asyncio.Event()
        self._coming: dict[tuple[Follower, int, int], asyncio.Task[None]] = {}
        self._gate = Gate(_AT_ONCE)
        self._overruns = 0
        self._wanted: set[tuple[Follower, int, int]] = set()
        self._begun_s: dict[Follower, float] = {}
        self._looked_s, self._looked_nbytes, self._rate = monotonic(), 0, 0.0

    def look(self) -> None:
        """Something has changed."""
        self._wake.set()

    def joined(self, follower: Follower) -> None:
        """One more."""
        self.followers[follower.name] = follower
        self._begun_s[follower] = monotonic()

    def weigh(self) -> None:
        """Those whose runs do not fit in besides those of the others have what they need by ranges."""
        left = 0.9 * self._holdings.room.nbytes
        for follower in self.followers.values():
            nbytes = max(map(follower.open_nbytes, follower.courses), default=0.0)
            follower.is_too_much = nbytes > left
            if follower.is_too_much:
                self._counts.warn(
                    f"memory={self._holdings.room.nbytes:,} is less than the {nbytes / 0.9e6:,.0f} MB that is mixed at "
                    "a time: samples are asked for one by one, and batches wait for them. Give it more (memory=), or "
                    "mix less (nearby_mix=)"
                )
            left -= 0.0 if follower.is_too_much else nbytes

    def of(self, connection: Any) -> Follower | None:
        """For whom it asks."""
        return self.followers.get(connection.by)

    def left(self, connection: Any) -> None:
        """A connection has ended; with the last one of a follower, that has too."""
        for follower in list(self.followers.values()):
            if follower.left(connection) and not follower.steps:
                self._holdings.passed(follower, None)
                del self.followers[follower.name]
                self._begun_s.pop(follower, None)
            elif follower.steps:
                self._holdings.passed(follower, follower.low)
        self.look()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await happens(self._wake, _LOOK_S)
            self._adapt()
            while not self._gate.is_full and (found := self._first()) is not None:
                follower, wanted = found
                if not self._has_room(follower, wanted):
                    break
                self.bring(follower, wanted)

    def bring(self, follower: Follower, wanted: Wanted, *, is_wanted: bool = False) -> asyncio.Task[None]:
        """Has it come; the task ends when it is there, and with an error if it cannot be had.

        Args:
            follower: Who needs it.
            wanted: What.
            is_wanted: Whether somebody waits for it.
        """
        place = follower, wanted.epoch, wanted.number
        if is_wanted:
            self._wanted.add(place)
        task = self._coming.get(place)
        if task is None:
            follower.take(wanted)
            nbytes = wanted.samples * float(follower.of.sample_nbytes[follower.of.shard_of(wanted.first)])
            weight = max(_LEAST_PLACE, min(1.0, nbytes / _PLACE_NBYTES))
            turn = self._gate.ask(weight)
            task = self._coming[place] = asyncio.ensure_future(self._bring(follower, wanted, turn, weight))
            task.add_done_callback(lambda done: self._come(place, done))
        return task

    def expecting(self, connection: Any, sample: int) -> tuple[Follower, Wanted] | None:
        """With what a sample will come that a connection asks for, and for whom."""
        for follower in self.followers.values():
            if connection not in follower.steps or follower.is_too_much:
                continue
            for wanted in follower.expecting(sample):
                if not follower.is_taken(wanted) or (follower, wanted.epoch, wanted.number) in self._coming:
                    return follower, wanted
        return None

    def begins(self, connection: Any, nbytes: int) -> bool:
        """Whether it asks for first batches, of a plan or of an epoch, and nobody knows yet whether more are wanted.

        Args:
            connection: Who asks.
            nbytes: What the samples take that it asks for.
        """
        mine = [one for one in self.followers.values() if connection in one.steps]
        for one in mine:
            if one.has_begun and not one.is_sure(one.front[0]):
                one.tried_nbytes += nbytes
                one.goes_on = one.tried_nbytes > _MOST_TRIED
        return any(not one.has_begun or not one.is_sure(one.front[0]) for one in mine)

    def due_s(self, of: ShardSet, follower: Follower, wanted: Wanted, queued_nbytes: int) -> float | None:
        """When it will be there that was not begun, behind so much that is asked for with it; None: nobody knows."""
        nbytes = int(wanted.samples * of.sample_nbytes[of.shard_of(wanted.first)])
        expected_s = of.network.racing.expected_s(nbytes)
        if expected_s is None or not self._rate or not follower.has_begun or not follower.is_sure(wanted.epoch):
            return None
        return max(expected_s, (queued_nbytes + nbytes) / self._rate)

    def _come(self, place: tuple[Follower, int, int], task: asyncio.Task[None]) -> None:
        del self._coming[place]
        self._wanted.discard(place)
        if not task.cancelled():
            task.exception()  # whoever needs it asks again, and is told
        self.look()

    def _adapt(self) -> None:
        """One more at once as long as that brings more and somebody waits for it."""
        now = monotonic()
        if now - self._looked_s < 1.0:
            return
        rate = (self._counts.nbytes - self._looked_nbytes) / (now - self._looked_s)
        self._looked_s, self._looked_nbytes = now, self._counts.nbytes
        overruns = sum(follower.of.network.outage.overruns for follower in self.followers.values())
        if overruns > self._overruns:
            self._gate.limit = max(_LEAST, self._gate.limit // 2)
        elif self._gate.is_full and rate > 1.05 * self._rate:
            self._gate.limit = min(_MOST, self._gate.limit + 1)
        self._overruns = overruns
        self._rate = max(rate, 0.9 * self._rate)
        self._holdings.spare_the_host()

    def _first(self) -> tuple[Follower, Wanted] | None:
        now = monotonic()
        first: tuple[Follower, Wanted] | None = None
        for follower in self.followers.values():
            if follower.is_too_much:
                continue
            if not follower.has_begun and now - self._begun_s[follower] < _STAND_BACK_S:
                continue
            wanted = follower.next()
            if wanted is not None and (first is None or wanted.due < first[1].due):
                first = follower, wanted
        return first

    def _has_room(self, follower: Follower, wanted: Wanted) -> bool:
        room = self._holdings.room
        nbytes = wanted.samples * float(follower.of.sample_nbytes[follower.of.shard_of(wanted.first)])
        held, used_nbytes = self._holdings.used()
        if held >= CELLS - 256 or used_nbytes + 1.1 * nbytes > room.nbytes:
            return False
        if wanted.due <= 0:
            return True
        front = follower.front
        uses = [(one.uses.get(follower), one.nbytes) for one in self._holdings.all()]
        ahead = sum(size for use, size in uses if use is not None and use[0] > front)
        # An epoch's first step needs a run of each lane at once.
        most = max(AHEAD_NBYTES, follower.open_nbytes(wanted.epoch)) if wanted.epoch > front[0] else AHEAD_NBYTES
        return ahead + nbytes <= min(most, _AHEAD_SHARE * room.nbytes)

    async def _bring(self, follower: Follower, wanted: Wanted, turn: asyncio.Future[None], weight: float) -> None:
        try:
            await turn
            await self._brought(follower, wanted)
        finally:
            self._gate.leave(turn, weight)

    async def _brought(self, follower: Follower, wanted: Wanted) -> None:
        of = follower.of
        sample, count = wanted.first, wanted.samples
        if self._holdings.kept is not None or self._holdings.stays(of):
            # Lanes cut runs in each epoch elsewhere. What stays has to be the same in all of them.
            sample, count = of.whole_run(sample, count)
        shard, begin, end = await of.range_of(sample, count)
        if end <= begin:
            return
        there = self._holdings.find(of.key(shard), begin, end)
        ones = [there] if there is not None else await self._filled_up(follower, shard, sample, count)
        self._counts.hits_memory += all(one.stretch is not None for one in ones)
        first, last = (wanted.epoch, wanted.first_step), (wanted.epoch, wanted.last_step)
        is_wanted = (follower, wanted.epoch, wanted.number) in self._wanted
        for one in ones:
            one.is_wanted = one.is_wanted or is_wanted
            before = one.uses.get(follower, (first, last))
            one.uses[follower] = min(before[0], first), max(before[1], last)
        for one in ones:
            if one.coming is not None:
                await asyncio.shield(one.coming)

    async def _filled_up(self, follower: Follower, shard: int, sample: int, count: int) -> list[Holding]:
        """What these samples of a shard are in: what is there of them, and what comes now of the rest.

        Other epochs have cut runs elsewhere. What is kept on a disk is looked for, and so fetched, as it was cut.
        """
        of = follower.of
        key, is_cut_anew = of.key(shard), self._holdings.kept is None
        samples = (sample, sample + count)
        for first, behind in self._holdings.missing(key, *samples) if is_cut_anew else [samples]:
            _, begin, end = await of.range_of(first, behind - first)
            if begin < end:
                run = self._holdings.fetch(of, shard, begin, end, run=True)
                run.samples, run.payer = (first, behind), follower.tally
                self._counts.runs += 1
        return self._holdings.with_samples(key, *samples)
