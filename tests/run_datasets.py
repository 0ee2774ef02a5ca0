"""Datasets that say which of their samples are read together. No torch here: workers import it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swift_loader import Cached, worker_info
from tests.traced import Traced

#: None, one, all alike, and larger than what is ranked.
LENGTHS = (7, 0, 1, 40, 12, 12, 12, 300, 5, 1, 60, 33, 0, 12)


class InRuns(Traced):
    """Samples that say who they are, in runs."""

    def __init__(self, lengths: Sequence[int] = LENGTHS, said: Any = None) -> None:
        super().__init__(sum(lengths))
        self.lengths = lengths if said is None else said

    def runs(self) -> Any:
        return self.lengths


class Disagrees(InRuns):
    """Runs that differ from worker to worker."""

    def runs(self) -> Any:
        info = worker_info()
        return self.lengths if info is None or info.worker == 0 else self.lengths[::-1]


def untouched(sample: Any) -> Any:
    """What is done afresh: nothing."""
    return sample


def cached(dataset: str = "runs") -> Cached:
    """A dataset in two parts, the first of which says so, or does not."""
    return Cached(InRuns() if dataset == "runs" else Traced(sum(LENGTHS)), untouched)
