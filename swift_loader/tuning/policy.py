"""What to look at next, and when it is enough. Pure: a generator that is sent looks, and ends with its choice.

    one worker      how long is a batch, how much of that is CPU: so how far can workers and threads help
    threads         only where samples mostly wait: twice as many as long as that helps
    climb           from the predicted count upwards, each count in turns with the best so far
    descend         between the most that are too few and the fewest that will do, until they are neighbours
    queues          tried where workers stand idle and the consumer starves all the same

Every comparison is one of looks that were taken in turns, so that both had the same machine, and goes on until it can
be told from noise. Where the consumer hardly waits there is nothing to compare: nothing can be better.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

from swift_loader.tuning import physics
from swift_loader.tuning.looks import TOLERANCE, Choice, Evidence, Failure, Look, decided, likelier
from swift_loader.tuning.physics import Machine, OneWorker

_MOST_THREADS = 32
#: Twice as many threads must bring so much more.
_WORTH_TWICE_THE_THREADS = 1.15
#: Comparisons that are as good as even are given up after so many pairs.
_MOST_PAIRS = 5
_LEAST_PAIRS_OF_A_GAIN = 3
#: So many counts in a row must bring nothing before there is no looking further up.
_MISSES = 2
#: Workers that make batches for less of their time than this stand idle for want of orders.
_IDLE = 0.9
_LONG = 4
_QUICK_BATCH_S = 2e-3


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be found out."""

    machine: Machine
    base: Choice
    """One worker, with the queues that were set."""
    consumer_s: float = 0.0
    batch_size: int = 1
    most_workers: int = 64
    may_thread: bool = True


class Question(NamedTuple):
    """What is to be looked at."""

    choice: Choice
    is_hurried: bool = False
    """Without the consumer's own time."""
    beside: Choice | None = None
    """What is about to be looked at again."""


Answer = Look | Failure
Looking = Generator[Question, Answer, None]


def search(task: Task, evidence: Evidence) -> Generator[Question, Answer, Choice]:
    """Asks until it knows; whoever answers puts the answers into ``evidence`` first."""
    return (yield from _Search(task, evidence).run())


class _Search:
    def __init__(self, task: Task, evidence: Evidence) -> None:
        self._task = task
        self._evidence = evidence
        self._most = task.most_workers

    def run(self) -> Generator[Question, Answer, Choice]:
        one = yield from self._one_worker(self._task.base)
        self._most = min(self._most, physics.most_by_memory(one, self._task.machine))
        start = self._task.base
        if self._task.may_thread and one.may_gain_by_threads:
            start = yield from self._threads()
            if start.threads > 1:
                one = yield from self._one_worker(start)
        count = min(self._most, physics.predicted(one, self._task.machine, self._task.consumer_s))
        best = yield from self._climb(start._replace(workers=count))
        found = yield from self._descend(best)
        found = yield from self._brisk(found)
        yield from self._look(found, times=3)
        return found

    def _one_worker(self, choice: Choice) -> Generator[Question, Answer, OneWorker]:
        """The first look at a loader is at what is not warm yet: the second one counts."""
        look: Answer = Failure("")
        is_hurried = self._task.consumer_s > 0
        for _ in range(2):
            look = yield Question(choice, is_hurried)
        if isinstance(look, Failure):
            return OneWorker(1.0, 1.0, 0.0, 0.0, 0)
        return OneWorker.seen(look)

    def _threads(self) -> Generator[Question, Answer, Choice]:
        """How many threads one worker should have."""
        evidence, best = self._evidence, self._task.base
        yield from self._look(best)
        most = min(_MOST_THREADS, self._task.batch_size)
        count = 2
        while count <= most and not evidence.feeds(best):
            more = best._replace(threads=count)
            yield from self._look(more)
            if evidence.rate(more) < _WORTH_TWICE_THE_THREADS * evidence.rate(best):
                break
            best, count = more, 2 * count
        return best

    def _climb(self, choice: Choice) -> Generator[Question, Answer, Choice]:
        """Upwards until there is nothing more to win."""
        evidence = self._evidence
        yield from self._look(choice, times=2)
        best, highest, misses = choice, choice.workers, 0
        while misses < _MISSES and highest < self._most and not (yield from self._feeds(best)):
            highest = min(self._most, self._above(best, highest))
            higher = best._replace(workers=highest)
            is_better = yield from self._reaches(higher, best, 1 + TOLERANCE / 2)
            if higher in evidence.failures:
                break
            best, misses = (higher, 0) if is_better else (best, misses + 1)
        return best

    def _above(self, best: Choice, highest: int) -> int:
        """The next count to try: further away where the consumer wants far more."""
        step = max(1, highest // 8)
        if best.workers < highest:  # it has just brought nothing
            return highest + step
        starved = self._evidence.starved(best)
        wanted = math.ceil(best.workers / max(1 - starved, 0.5))
        return max(highest + 1, min(wanted, highest + step)) if self._task.consumer_s else highest + step

    def _descend(self, best: Choice) -> Generator[Question, Answer, Choice]:
        """Downwards as long as that is as good as the best."""
        evidence = self._evidence
        found, too_few = best, 0
        while found.workers - too_few > 1:
            # Of workers that make batches for a third of their time, a third will do.
            guess = math.ceil(found.workers * evidence.utilisation(found))
            count = min(found.workers - 1, max(too_few + 1, guess))
            fewer = yield from self._good_enough(best._replace(workers=count), best)
            found, too_few = (found, count) if fewer is None else (fewer, too_few)
        if found == best and not evidence.feeds(best):
            longer = best._replace(data_queue=_LONG * best.data_queue)
            if self._stand_idle(best) and (yield from self._reaches(longer, best, 1 + TOLERANCE)):
                return longer
        return found

    def _good_enough(self, fewer: Choice, best: Choice) -> Generator[Question, Answer, Choice | None]:
        """Whether fewer workers do as well: as they are, or with longer queues; None if not."""
        if (yield from self._does(fewer, best)):
            return fewer
        longer = fewer._replace(data_queue=_LONG * fewer.data_queue)
        if fewer not in self._evidence.failures and self._stand_idle(fewer) and (yield from self._does(longer, best)):
            return longer
        return None

    def _does(self, choice: Choice, best: Choice) -> Generator[Question, Answer, bool]:
        if self._evidence.feeds(best):
            yield from self._look(choice)
            return choice not in self._evidence.failures and (yield from self._feeds(choice))
        return (yield from self._reaches(choice, best, 1 - TOLERANCE))

    def _stand_idle(self, choice: Choice) -> bool:
        return self._evidence.utilisation(choice) < _IDLE

    def _brisk(self, found: Choice) -> Generator[Question, Answer, Choice]:
        """Quick batches may want more orders on their way."""
        looks = self._evidence.looks.get(found, [])
        batches = sum(look.batches for look in looks)
        is_quick = batches > 0 and sum(look.made_s for look in looks) / batches < _QUICK_BATCH_S
        if not is_quick or self._evidence.feeds(found):
            return found
        more = found._replace(message_queue=_LONG * found.message_queue)
        return more if (yield from self._reaches(more, found, 1 + TOLERANCE)) else found

    def _look(self, choice: Choice, times: int = 1) -> Looking:
        """Has so many looks at it."""
        while len(self._evidence.looks.get(choice, ())) < times and choice not in self._evidence.failures:
            yield Question(choice)

    def _feeds(self, choice: Choice) -> Generator[Question, Answer, bool]:
        """Whether the consumer hardly waits; looks more often where that is not clear."""
        evidence = self._evidence
        yield from self._look(choice, times=2)
        if TOLERANCE / 2 < evidence.starved(choice) < 2 * TOLERANCE:
            yield from self._look(choice, times=5)
        return choice not in evidence.failures and evidence.feeds(choice)

    def _reaches(self, one: Choice, other: Choice, bound: float) -> Generator[Question, Answer, bool]:
        """Whether ``one`` has at least ``bound`` times the rate of ``other``: looks at both in turns."""
        evidence = self._evidence
        pairs: list[tuple[Look, Look]] = []
        while len(pairs) < _MOST_PAIRS:
            turns = (one, other) if len(pairs) % 2 == 0 else (other, one)
            first = yield Question(turns[0], beside=turns[1])
            if isinstance(first, Failure):
                return False
            second = yield Question(turns[1], beside=turns[0])
            if isinstance(second, Failure):
                return False
            pairs.append((first, second) if turns[0] == one else (second, first))
            clear = decided(pairs, evidence.noise(), bound=bound)
            # A gain is looked at once more: who goes on by chance does so again and again.
            if clear is not None and not (clear and bound > 1 and len(pairs) < _LEAST_PAIRS_OF_A_GAIN):
                return clear
        # Where noise hides it: what is to be a gain must be seen to be one, what is to be as good must only look so.
        return bound < 1 and likelier(pairs, bound=bound)
