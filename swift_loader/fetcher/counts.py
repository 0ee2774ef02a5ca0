"""What the fetcher counts, for those who ask it: of all that it does, and of each consumer."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any

#: Of so many consumers it is remembered what came for them; those that were heard of last.
_MOST_TALLIES = 256


@dataclass
class Tally:
    """Of one consumer of one training, since it was first heard of."""

    nbytes: int = 0
    """That came over the network because it needed them, and nobody before it did."""
    waits: int = 0
    wait_s: float = 0.0
    """Batches that were not there when they were wanted, and how long those waited, in all."""
    wanted_nbytes: float = 0.0
    """What the batches take that its workers have made."""
    working_s: float = 0.0
    """How long its workers took for them, in all, without what they waited for the store."""


@dataclass
class Asking:
    """Whether anything is asked for, and for how long it was."""

    seconds: float = 0.0
    under_way: int = 0
    since_s: float = 0.0

    def change(self, more: int) -> None:
        """So many requests more are under way from now on."""
        now_s = monotonic()
        self.seconds += now_s - self.since_s if self.under_way else 0.0
        self.under_way += more
        self.since_s = now_s


@dataclass
class Counts:
    """Since the fetcher has begun."""

    requests: int = 0
    nbytes: int = 0
    """That came over the network, and were used."""
    retries: int = 0
    hedges: int = 0
    refetches: int = 0
    """Bytes that were damaged where they landed, and asked for again."""
    renewals: int = 0
    """Keys that had expired."""
    ranges_nbytes: int = 0
    """Of what came, what was fetched because somebody waited for it."""
    runs: int = 0
    ranges: int = 0
    """Stretches of the set that were fetched: by the plan, and because somebody waited for them."""
    hits_kept: int = 0
    hits_memory: int = 0
    """Of the plan's stretches, those that lay in the folder, and those that were in memory already."""
    kept_nbytes: int = 0
    waits: int = 0
    """Batches that were not there when they were wanted."""
    wait_s: float = 0.0
    """How long those waited, in all."""
    evicted_in_use: int = 0
    """Stretches that were let go of though they were needed still: there is too little memory."""
    warnings: list[str] = field(default_factory=list)
    """What users should know."""
    asking: Asking = field(default_factory=Asking)
    consumers: OrderedDict[str, Tally] = field(default_factory=OrderedDict)
    """By the names that their workers say."""

    def of(self, consumer: str) -> Tally:
        """What is counted of a consumer."""
        tally = self.consumers.setdefault(consumer, Tally())
        self.consumers.move_to_end(consumer)
        if len(self.consumers) > _MOST_TALLIES:
            self.consumers.popitem(last=False)
        return tally

    def warn(self, text: str) -> None:
        """The user is told, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def asked(self) -> None:
        """A request has begun."""
        self.requests += 1
        self.asking.change(1)

    def answered(self) -> None:
        """A request has ended."""
        self.asking.change(-1)

    def told(self) -> dict[str, Any]:
        """As words."""
        self.asking.change(0)
        told = asdict(self)
        asking = told.pop("asking")
        return {**told, "asking_s": asking["seconds"]}
