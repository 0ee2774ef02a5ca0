"""What the checks share: what is checked, the time there is, and the walks through it, each made once.

A walk starts workers and builds the dataset in them, which is most of what a check costs. So there are few:

    first     one worker, sample 0: can it be built, how long is it, how long does a sample take
    closely   one worker: chosen samples, again backwards, again in another epoch, then many more for time and memory
    apart     three workers, the same samples in another order, workers killed on the way
    hashed    one worker with another seed of hashes, some of the samples; twice
    threaded  one worker with threads, the same samples
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable
from time import monotonic

from swift_loader.loader import SwiftLoader
from swift_loader.testing.nemesis import Nemesis
from swift_loader.testing.probe import Built, Look, Seen
from swift_loader.testing.subject import Subject
from swift_loader.testing.walk import COMMON_HASH_SEED, Blocked, Manner, Visits, Walk, walk

THREADS = 8
#: Samples looked at for time and memory alone: with fewer a small leak cannot be told from how allocators breathe.
_WEIGHED = 20_000
#: A walk starts workers, which takes about so long: with less time left it is not begun.
_LEAST_S = 0.5


class Lab:
    """For one subject."""

    def __init__(self, subject: Subject, samples: int, seconds: float) -> None:
        self.subject = subject
        self.seconds = seconds
        self.patience_s = max(1.0, seconds / 4)
        """After so long without a sample a worker counts as hung."""
        self.builds: list[Built] = []
        """One for each worker that was seen."""
        self.told: set[str] = set()
        """The checks that have found a problem so far."""
        self.chance = random.Random(1)  # noqa: S311 - the same samples each time
        self._samples = samples
        self._end = monotonic() + seconds
        self._made: dict[str, Walk | Blocked] = {}
        self._chosen: tuple[int, ...] = ()

    @property
    def left_s(self) -> float:
        """How much time there is."""
        return self._end - monotonic()

    def until(self, share: float) -> float:
        """When so much of the time that is left will have passed.

        Raises:
            Blocked: if there is next to nothing left.
        """
        if self.left_s < _LEAST_S:
            raise Blocked(f"no time was left of seconds={self.seconds:g}")
        return monotonic() + share * self.left_s

    def first(self) -> Walk:
        """See above."""
        return self._once("first", lambda: self._walk(Visits(((0, 0, 0),)), Manner(), 0.5))

    def closely(self) -> Walk:
        """See above; `chosen` tells the samples."""
        return self._once("closely", self._look_closely)

    def apart(self) -> Walk:
        """See above."""
        return self._once("apart", self._look_apart)

    def hashed(self, other: int) -> Walk:
        """See above; ``other`` tells which other seed."""
        return self._once(f"hashed {other}", lambda: self._look_hashed(other))

    def threaded(self) -> Walk:
        """See above."""
        return self._once("threaded", self._look_with_threads)

    def made(self, name: str) -> list[Walk]:
        """The walk of that name, if it was made."""
        made = self._made.get(name)
        return [made] if isinstance(made, Walk) else []

    @property
    def length(self) -> int:
        """The dataset's.

        Raises:
            Blocked: if it has none.
        """
        seen = self.first().seen
        if not seen:
            raise Blocked("sample 0 cannot be had")
        if seen[0].built.complaint:
            raise Blocked("it has no length")
        return seen[0].built.length

    @property
    def sample_s(self) -> float:
        """About how long a sample takes."""
        times = [one.wall_ns for one in self.first().seen if one.wall_ns]
        return statistics.median(times) / 1e9 if times else 0.0

    @property
    def chosen(self) -> tuple[int, ...]:
        """The samples that are looked at: the first, the last, and some between; fewer where they take long."""
        if not self._chosen:
            length = self.length
            affordable = 0.1 * self.left_s / max(self.sample_s, 1e-6)  # each comes about ten times
            count = min(length, max(4, min(self._samples, int(affordable))))
            inner = range(1, length - 1)
            some = self.chance.sample(inner, max(0, min(len(inner), count - 2)))
            self._chosen = (0, *some, *([length - 1] if length > 1 else []))
        return self._chosen

    def _look_closely(self) -> Walk:
        chosen = self.chosen
        count = int(min(_WEIGHED, 0.15 * self.left_s / max(self.sample_s, 1e-6)))
        length = self.length
        more: list[int] = []
        while len(more) < count:
            more += self.chance.sample(range(length), min(length, count - len(more)))
        visits = Visits((chosen + chosen[::-1], chosen, tuple(more)))
        return self._walk(visits, Manner(look=Look(briefly_from_epoch=2)), 0.5)

    def _good(self) -> list[int]:
        """Of the chosen samples those that can be had."""
        had = {one.index for one in self.closely().of(0)}
        good = [index for index in self.chosen if index in had]
        if not good:
            raise Blocked("no sample can be had")
        return good

    def _look_apart(self) -> Walk:
        order = self._good()
        self.chance.shuffle(order)
        order += order[::-1]
        kills = {len(order) // 4: 1, len(order) // 2: 2}

        def kill(loader: SwiftLoader, step: int) -> None:
            if step in kills:
                Nemesis(loader, seed=step).strike(kills[step])

        return self._walk(Visits((tuple(order),)), Manner(workers=3, meanwhile=kill), 0.4)

    def _look_hashed(self, other: int) -> Walk:
        if self.subject.config.start_method == "fork":
            raise Blocked("start_method='fork': workers hash as your process does")
        taken = os.environ.get("PYTHONHASHSEED", COMMON_HASH_SEED)
        seed = [str(one) for one in range(1, 10) if str(one) != taken][other]
        manner = Manner(hash_seed=seed)
        return walk(self.subject, Visits((tuple(self._good()),)), manner, self.patience_s, self.until(0.4))

    def _look_with_threads(self) -> Walk:
        rounds: list[int] = []
        for _ in range(3):
            order = self._good()
            self.chance.shuffle(order)
            rounds += order
        manner = Manner(threads=THREADS, look=Look(is_hurried=True))
        return self._walk(Visits((tuple(rounds),), size=32), manner, 0.5)

    def _walk(self, visits: Visits, manner: Manner, share: float) -> Walk:
        found = walk(self.subject, visits, manner, self.patience_s, self.until(share))
        pids = {built.pid for built in self.builds}
        for one in found.seen:
            if one.built.pid not in pids:
                pids.add(one.built.pid)
                self.builds.append(one.built)
        return found

    def _once(self, name: str, make: Callable[[], Walk]) -> Walk:
        if name not in self._made:
            try:
                self._made[name] = make()
            except Blocked as reason:
                self._made[name] = reason
        made = self._made[name]
        if isinstance(made, Blocked):
            raise made
        return made


def failures(walks: list[Walk]) -> dict[int, Seen]:
    """The samples that raised, by index."""
    return {one.index: one for each in walks for one in each.seen if one.failure is not None}
