"""What is tried, what a short run of it showed, and what all the runs together say. Pure: figures in, figures out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median, stdev
from typing import NamedTuple

#: Below this share of its time a consumer that waits is not worth another worker, and no two counts are told apart.
TOLERANCE = 0.02
#: What is believed of the noise before it was seen, and how many looks it takes to believe otherwise: the first few may
#: agree by chance.
_BELIEVED_NOISE, _BELIEF = 0.015, 4
#: A boundary is decided by so many standard errors.
_SURE = 1.7


class Choice(NamedTuple):
    """Settings to try. Fewer workers come first, then fewer threads, then shorter queues."""

    workers: int
    threads: int = 1
    data_queue: int = 10
    message_queue: int = 10

    def words(self, usual: Choice) -> str:
        """In a few words: what differs from the usual."""
        parts = [f"{self.workers} worker{'s' if self.workers > 1 else ''}"]
        names = ("{} threads", "data queue {}", "message queue {}")
        pairs = zip(names, self[1:], usual[1:], strict=True)
        return ", ".join(parts + [name.format(value) for name, value, other in pairs if value != other])


class Look(NamedTuple):
    """What a short run showed. Times are sums of seconds."""

    batches: int
    seconds: float
    """From the arrival of a batch to that of the one so many later."""
    wait_s: float
    """The consumer starved."""
    made_s: float
    """Workers were making these batches."""
    samples: int = 0
    cpu_s: float = 0.0
    """The workers' CPU time."""
    queued_s: float = 0.0
    """The workers wanted a core and had none."""
    worker_nbytes: int = 0
    """The largest worker's own memory."""

    @property
    def rate(self) -> float:
        """Batches per second."""
        return self.batches / self.seconds if self.seconds > 0 else 0.0

    @property
    def starved(self) -> float:
        """The share of the time that the consumer waited."""
        return min(1.0, self.wait_s / self.seconds) if self.seconds > 0 else 0.0

    @property
    def waiting(self) -> float:
        """The share of a worker's time in which it neither used a core nor wanted one."""
        return max(0.0, 1 - (self.cpu_s + self.queued_s) / self.made_s) if self.made_s > 0 else 0.0


class Failure(NamedTuple):
    """Why a choice cannot be had."""

    reason: str


@dataclass
class Evidence:
    """All looks, by what was looked at."""

    looks: dict[Choice, list[Look]] = field(default_factory=dict)
    """With the consumer's own time between batches."""
    hurried: dict[Choice, list[Look]] = field(default_factory=dict)
    """Batches were taken as fast as they came."""
    failures: dict[Choice, Failure] = field(default_factory=dict)

    def add(self, choice: Choice, look: Look, *, is_hurried: bool) -> None:
        (self.hurried if is_hurried else self.looks).setdefault(choice, []).append(look)

    def rate(self, choice: Choice) -> float:
        """Batches per second, in the middle of all looks; 0 if there was none."""
        return median([look.rate for look in self.looks.get(choice, ())] or [0.0])

    def starved(self, choice: Choice) -> float:
        """The share of the time that the consumer waited, in the middle of all looks."""
        return median([look.starved for look in self.looks.get(choice, ())] or [1.0])

    def feeds(self, choice: Choice) -> bool:
        """Whether the consumer waits for so little that nothing could be better."""
        return self.starved(choice) <= TOLERANCE

    def utilisation(self, choice: Choice) -> float:
        """The share of the time that its workers were making batches."""
        looks = self.looks.get(choice, ())
        shares = [look.made_s / (look.seconds * choice.workers) for look in looks if look.seconds > 0]
        return min(1.0, median(shares or [1.0]))

    def best(self) -> Choice | None:
        """What was fastest; of those that feed the consumer the fewest."""
        if not self.looks:
            return None
        feeding = [choice for choice in self.looks if self.feeds(choice)]
        return min(feeding) if feeding else max(self.looks, key=self.rate)

    def fewest(self) -> Choice | None:
        """The fewest workers that are as good as the best, as far as is known: what noise may explain is no gain."""
        best = self.best()
        if best is None:
            return None
        doubt = self.noise() / math.sqrt(len(self.looks[best]))
        least = (1 - max(TOLERANCE, doubt)) * self.rate(best)
        return min(choice for choice in self.looks if self.rate(choice) >= least)

    def noise(self) -> float:
        """By how much two looks at the same choice differ, as a share."""
        deviations = []
        for looks in self.looks.values():
            middle = median(look.rate for look in looks)
            if len(looks) > 1 and middle > 0:
                # n looks have n-1 chances to differ.
                spread = len(looks) / (len(looks) - 1)
                deviations += [spread * (look.rate / middle - 1) ** 2 for look in looks]
        believed = _BELIEF * _BELIEVED_NOISE**2
        return math.sqrt((sum(deviations) + believed) / (len(deviations) + _BELIEF))


def decided(pairs: list[tuple[Look, Look]], noise: float, *, bound: float) -> bool | None:
    """Whether the first of two choices reaches ``bound`` times the rate of the second; None if it cannot be told yet.

    Args:
        pairs: Looks at both, each taken right after the other, so that both had the same machine.
        noise: What one look is known to deviate by.
        bound: The ratio in question, such as 0.98.
    """
    if len(pairs) < 2:
        return None
    middle, error = _ratio(pairs, noise)
    distance = middle - math.log(bound)
    return None if abs(distance) < _SURE * error else distance > 0


def likelier(pairs: list[tuple[Look, Look]], *, bound: float) -> bool:
    """The same where there is no more time to be sure."""
    return _ratio(pairs, 0.0)[0] >= math.log(bound)


def _ratio(pairs: list[tuple[Look, Look]], noise: float) -> tuple[float, float]:
    """The middle of the logarithms of the ratios, and its error."""
    logs = [math.log(max(one.rate, 1e-9) / max(other.rate, 1e-9)) for one, other in pairs]
    own = stdev(logs) if len(logs) > 2 else 0.0
    return median(logs), max(own, math.sqrt(2) * noise) / math.sqrt(len(logs))
