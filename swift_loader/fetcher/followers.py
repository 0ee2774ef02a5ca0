"""Who will need what, and when: the plan of each consumer as its workers have told it, and how far they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from swift_loader.fetcher.counts import Tally
from swift_loader.fetcher.holdings import Step
from swift_loader.fetcher.sets import ShardSet
from swift_loader.plan.epoch_lanes import Need

#: A worker that is so far behind, and has not been heard of for so long, has nothing to do.
_BEHIND_STEPS, _SILENT_S = 64, 5.0
#: The next epoch is asked for when so many stretches of this one are still to come.
_LEFT = 64
#: So many steps before the end of what was told, more is asked for.
_NEAR_STEPS = 20
#: Workers make batches of the next epoch before anybody has asked for one: so many, and two each; of few, a part.
_MADE_AHEAD, _PART_OF_EPOCH = 12, 4


class Wanted(NamedTuple):
    """A stretch of samples that lie side by side, and when it is needed."""

    due: int
    """In steps from now on; of the next epoch, behind all of this one."""
    epoch: int
    number: int
    first: int
    samples: int
    first_step: int
    last_step: int


class Course:
    """What a follower needs in one epoch, and what of it was taken up. Stretches keep their numbers."""

    def __init__(self, need: Need, taken: Any = None, base: int = 0) -> None:
        self._need, self._base = need, base
        self._taken = np.zeros(len(need.first), bool) if taken is None else taken
        self._by_first = np.argsort(need.first, kind="stable")
        self._firsts = need.first[self._by_first]
        self._at = 0
        self._open_nbytes: float | None = None
        self.steps = int(need.last_step.max(initial=-1)) + 1
        """As far as is known."""

    def open_nbytes(self, of: ShardSet) -> float:
        """The most that must be there at once so that nothing is fetched twice."""
        if self._open_nbytes is None:
            need = self._need
            shards = np.searchsorted(of.catalog.bounds, need.first, "right") - 1
            sizes = need.size * of.sample_nbytes[shards]
            change = np.bincount(need.first_step, sizes, self.steps + 1)
            change -= np.bincount(need.last_step + 1, sizes, len(change))
            self._open_nbytes = float(np.cumsum(change).max(initial=0))
        return self._open_nbytes

    @property
    def left(self) -> int:
        """How many of its stretches were not come to yet."""
        return len(self._taken) - self._at

    def next(self, step: int) -> int | None:
        """The one that is needed first, by a step from this one on, of those that were not taken up."""
        while self._at < len(self._taken) and (self._taken[self._at] or int(self._need.last_step[self._at]) < step):
            self._at += 1
        return self._base + self._at if self.left else None

    def of(self, sample: int) -> int | None:
        """The one that a sample is in."""
        place = int(np.searchsorted(self._firsts, sample, "right")) - 1
        if place < 0:
            return None
        number = int(self._by_first[place])
        return self._base + number if sample < int(self._need.first[number] + self._need.size[number]) else None

    def stretch(self, number: int) -> tuple[int, ...]:
        """Its first sample, how many there are, and the first and the last step that needs it."""
        return tuple(int(column[number - self._base]) for column in self._need)

    def take(self, number: int) -> None:
        """It is taken up."""
        self._taken[number - self._base] = True

    def is_taken(self, number: int) -> bool:
        """Whether it was."""
        return bool(self._taken[number - self._base])

    def with_more(self, need: Need) -> Course:
        """With what is needed besides, later; without those at its beginning that were come to."""
        old = [column[self._at :] for column in self._need]
        taken = np.concatenate((self._taken[self._at :], np.zeros(len(need.first), bool)))
        more = Need(*(np.concatenate(columns) for columns in zip(old, need, strict=True)))
        return Course(more, taken, self._base + self._at)


@dataclass(eq=False)
class Follower:
    """One consumer of one training."""

    of: ShardSet
    name: Any
    courses: dict[int, Course] = field(default_factory=dict)
    """Of each epoch that it has told of."""
    until: dict[int, int] = field(default_factory=dict)
    """Of plans that know of no runs: up to which step of each epoch."""
    asked_for: int = -1
    """The step from which on one of its workers was asked to tell more."""
    steps: dict[Any, tuple[Step, float]] = field(default_factory=dict)
    """Where each connection is, and since when."""
    is_too_much: bool = False
    """Whether there is no room for its runs, and it has what it needs by ranges."""
    has_begun: bool = False
    """Whether it has had what it asked for once."""
    begun_epoch: int | None = None
    goes_on: bool = False
    """Whether it has gone on to another epoch, and so may do so again."""
    tried_nbytes: int = 0
    """What was asked for of another epoch before that was known."""
    tally: Tally = field(default_factory=Tally)
    step_nbytes: float = 0.0
    """What a step takes, on average."""
    waited_s: dict[Any, float] = field(default_factory=dict)
    """How long each connection has waited in the step that it is at."""

    def is_at(self, connection: Any, step: Step) -> None:
        """A worker begins a step, and so is done with the one before."""
        now = monotonic()
        before, since_s = self.steps.get(connection, ((-1, 0), now))
        if before[0] == step[0]:
            self.tally.wanted_nbytes += self.step_nbytes
            self.tally.working_s += max(0.0, now - since_s - self.waited_s.get(connection, 0.0))
        self.waited_s[connection] = 0.0
        self.steps[connection] = step, now
        if self.begun_epoch is None:
            self.begun_epoch = step[0]
        course = self.courses.get(step[0])
        if step[0] > self.begun_epoch and course is not None and not self.goes_on:
            self.goes_on = step[1] >= min(_MADE_AHEAD + 2 * len(self.steps), course.steps // _PART_OF_EPOCH)

    def waited(self, connection: Any, wait_s: float) -> None:
        """A worker has waited for what its step needs."""
        self.tally.waits += 1
        self.tally.wait_s += wait_s
        self.waited_s[connection] = self.waited_s.get(connection, 0.0) + wait_s

    def left(self, connection: Any) -> bool:
        """A connection has ended; whether it was this one's."""
        self.waited_s.pop(connection, None)
        return self.steps.pop(connection, None) is not None

    def is_sure(self, epoch: int) -> bool:
        """Whether that epoch will be gone through: first batches are made by a loader that may be at its end."""
        return self.goes_on or epoch == self.begun_epoch

    @property
    def front(self) -> Step:
        """The step of the worker that is ahead of all."""
        return max((step for step, _ in self.steps.values()), default=(0, 0))

    @property
    def low(self) -> Step:
        """The step that all have come to who do anything."""
        front, now = self.front, monotonic()
        return min(
            (
                step
                for step, since_s in self.steps.values()
                if now - since_s < _SILENT_S or (step[0] == front[0] and front[1] - step[1] <= _BEHIND_STEPS)
            ),
            default=front,
        )

    def told(self, epoch: int, need: Need, until: int | None) -> None:
        """It needs that, in all of an epoch, or in its steps before ``until``; several processes tell the same."""
        before = self.courses.get(epoch)
        shards = np.searchsorted(self.of.catalog.bounds, need.first, "right") - 1
        first_step, behind = (0, 0) if until is None or not len(shards) else (int(need.first_step.min()), until)
        steps = max(behind, int(need.last_step.max(initial=0)) + 1) - first_step
        self.step_nbytes = float((need.size * self.of.sample_nbytes[shards]).sum()) / max(1, steps)
        if before is None:
            self.courses[epoch] = Course(need)
        elif until is not None and until > self.until.get(epoch, 0):
            self.courses[epoch] = before.with_more(need)
        if until is not None:
            self.until[epoch] = max(until, self.until.get(epoch, 0))

    def missing(self) -> dict[str, Any]:
        """What it should tell: of which epochs, or from which step of this one on."""
        epoch, step = self.front
        for old in [known for known in self.courses if known < self.low[0]]:
            del self.courses[old]
            self.until.pop(old, None)
        if epoch not in self.courses:
            return {"tell": [epoch]}
        until = self.until.get(epoch)
        if until is not None:
            # Who was asked may have died: where nothing was told in time, the next one is asked.
            is_near = step + _NEAR_STEPS >= until and (until != self.asked_for or step >= until)
            self.asked_for = until if is_near else self.asked_for
            return {"steps": [epoch, max(until, step)]} if is_near else {}
        is_near = self.goes_on and self.courses[epoch].left <= _LEFT
        return {"tell": [epoch + 1]} if is_near and epoch + 1 not in self.courses else {}

    def next(self) -> Wanted | None:
        """What is needed first of what was not taken up yet."""
        epoch, step = self.front
        for when in (epoch, epoch + 1):
            course = self.courses.get(when) if self.is_sure(when) else None
            # What is over by now was needed by nobody, or had by ranges: a training that goes on begins in its middle.
            number = None if course is None else course.next(step if when == epoch else 0)
            if number is not None:
                return self._wanted(when, number)
        return None

    def expecting(self, sample: int) -> Iterator[Wanted]:
        """What a sample comes with, in the epochs that are known."""
        for when, course in self.courses.items():
            number = course.of(sample)
            if number is not None and sample >= 0:
                yield self._wanted(when, number)

    def is_taken(self, wanted: Wanted) -> bool:
        """Whether it was taken up."""
        return self.courses[wanted.epoch].is_taken(wanted.number)

    def _wanted(self, when: int, number: int) -> Wanted:
        epoch, step = self.front
        first, size, first_step, last_step = self.courses[when].stretch(number)
        due = first_step - step
        if when != epoch and epoch in self.courses:
            due += self.courses[epoch].steps
        return Wanted(due, when, number, first, size, first_step, last_step)

    def take(self, wanted: Wanted) -> None:
        """It is taken up."""
        self.courses[wanted.epoch].take(wanted.number)

    def open_nbytes(self, epoch: int) -> float:
        """The most that must be there at once so that nothing is fetched twice."""
        return self.courses[epoch].open_nbytes(self.of)
