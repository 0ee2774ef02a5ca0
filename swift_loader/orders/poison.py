"""What is held against batches and samples at which workers died. Pure.

    a worker crashed, or was killed by us      held against the sample in hand: `max_attempts` of them are enough
    it got a SIGKILL from outside              held against the batch: four times as many, at whichever samples
    so it did before it finished one sample    hardly held against anything: it takes ten of them for one

A sample that kills does it each time. Whoever kills workers from outside hits another sample each time; or again and
again the first one, where workers are killed faster than they come to the second, as when a first sample takes long to
import what it needs. Even a storm of those ends some day, and a batch that kills every worker must be named.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from swift_loader.wire.messages import Caution

if TYPE_CHECKING:
    from swift_loader.errors import FailureReport
    from swift_loader.orders.death import Death
    from swift_loader.settings.loader import LoaderConfig

#: A batch at which so many times `max_attempts` workers have died is given up, whichever of its samples they were at,
#: and whoever has killed them.
_MOST_DEATHS = 4
#: So many deaths of workers that had not finished one sample count for one.
_EARLY_FOR_ONE = 10


class _Kind(Enum):
    CRASH = "a crash"
    OUTSIDE = "a SIGKILL from outside"
    EARLY = "a SIGKILL from outside, before its first sample was finished"


_Deaths: TypeAlias = "Counter[tuple[int | None, _Kind]]"


class Charges:
    """Batches by their ticket's number, samples by their index."""

    def __init__(self, config: LoaderConfig) -> None:
        self._skips = config.on_error == "skip"
        self._most = config.max_attempts
        self._threads = config.worker_threads
        self._deaths: dict[int, _Deaths] = {}
        self.left_out: dict[int, FailureReport] = {}
        """Samples that have killed too many, with ``on_error="skip"``; they are not tried again."""

    def __contains__(self, seq: int) -> bool:
        """Whether a worker has died at this batch."""
        return seq in self._deaths

    def __bool__(self) -> bool:
        return bool(self._deaths or self.left_out)

    def clear(self) -> None:
        """Other batches are made from now on. What samples have done is not forgotten."""
        self._deaths.clear()

    def dropped(self, seq: int) -> None:
        """The batch was made, or has failed in another way."""
        self._deaths.pop(seq, None)

    def count(self, seq: int) -> int:
        """How many workers a batch has killed."""
        return self._deaths[seq].total()

    def caution(self, seq: int, told_count: int) -> Caution | None:
        """What a worker that knows of so many left out samples is to be told before this batch."""
        is_careful = seq in self._deaths
        if not self._skips or not (is_careful or told_count < len(self.left_out)):
            return None
        return Caution(seq if is_careful else 0, dict(islice(self.left_out.items(), told_count, None)))

    def is_given_up(self, seq: int, death: Death) -> bool:
        """Counts a death at a batch; says whether it is given up for that. A sample may be left out instead."""
        index = death.index
        is_first = seq not in self._deaths
        deaths = self._deaths.setdefault(seq, Counter())
        if self._skips and is_first and (index is None or self._threads > 1):
            # Any of several samples may be guilty. From now on it is made with care: one sample after the other.
            deaths[None, _Kind.OUTSIDE] += 1
            return False
        deaths[index, _kind(death)] += 1
        if deaths[index, _Kind.CRASH] < self._most and _weight(deaths) < _MOST_DEATHS * self._most:
            return False
        at_this_one = sum(deaths[index, kind] for kind in _Kind)
        if not self._skips or index is None or at_this_one < self._most:
            return True
        self.left_out[index] = death.poisoned(at_this_one)
        for kind in _Kind:
            del deaths[index, kind]
        return False


def _kind(death: Death) -> _Kind:
    if not death.is_from_outside:
        return _Kind.CRASH
    return _Kind.EARLY if death.is_early else _Kind.OUTSIDE


def _weight(deaths: _Deaths) -> int:
    early = sum(count for (_, kind), count in deaths.items() if kind is _Kind.EARLY)
    return deaths.total() - early + early // _EARLY_FOR_ONE
