"""A dataset may be told of each step before it is made, know what follows, and tell its runs to a plan that asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from swift_loader import Cached, ConfigError, DataError, SwiftLoader, WorkerStartFailed, worker_info
from tests.slow import slow

COUNT, BATCH = 40, 4


class Told:
    """Samples tell what their dataset was told before."""

    def __init__(self, lengths: Any = None) -> None:
        self.lengths = lengths
        self.at = (-1, -1)
        self.ahead: list[list[int]] = []

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return np.array([*self.at, sum(index in batch for batch in self.ahead[:1]), len(self.ahead)]), index

    def turn_to(self, epoch: int, step: int) -> None:
        self.at = (epoch, step)
        info = worker_info()
        assert info is not None
        self.ahead = info.upcoming(3)

    def runs(self) -> Any:
        return self.lengths


class Fails(Told):
    def turn_to(self, epoch: int, step: int) -> None:
        raise ValueError(f"not step {step}")


def cached() -> Cached:
    return Cached(Told([10, 30]), then=_same)


def _same(sample: Any) -> Any:
    return sample


@dataclass
class RunByRun:
    """A plan whose batches are whole runs."""

    lengths: list[int] = field(default_factory=list)

    def with_runs(self, lengths: Any) -> RunByRun:
        return RunByRun([] if lengths is None else lengths.tolist())

    def step_count(self, epoch: int, consumer: int) -> int:
        return len(self.lengths)

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:
        ends = np.cumsum(self.lengths)
        return [list(range(ends[at] - self.lengths[at], ends[at])) for at in range(first, first + count)]

    def fingerprint(self) -> dict[str, Any]:
        return {"plan": "RunByRun", "nb_consumer": 1, "runs": str(self.lengths)}


def loader(dataset: Any, workers: int, kwargs: Any = None, **settings: Any) -> SwiftLoader:
    return SwiftLoader(dataset, kwargs or {}, BATCH, nb_consumer=1, worker_per_consumer=workers, seed=3, **settings)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Told, cached])
@pytest.mark.parametrize(
    "settings", [{}, {"cache_setting": {"medium": "memory", "nbytes": 1 << 20}}], ids=["", "cache"]
)
def test_a_dataset_is_told_of_each_step_and_knows_what_follows(workers: int, dataset: Any, settings: dict):
    with loader(dataset, workers, **settings) as one:
        one.start(0)
        for epoch in range(1 if settings else 2):  # what is kept was told of the step that it was made for
            for step, (told, _) in enumerate(one):
                follow = min(3, COUNT // BATCH - step)
                of_now = [row for row in told.tolist() if row[0] == epoch]
                assert all(row == [epoch, step, 1, follow] for row in of_now)
                # What a worker that is ahead has made and kept for the next epoch is used by one that is still in this.
                assert len(of_now) == BATCH or (settings and workers)


def _begun(one: SwiftLoader) -> None:
    with one:
        one.start(0)
        next(iter(one))


@pytest.mark.parametrize("workers", [0, 1])
def test_what_turn_to_raises_is_the_datasets_error(workers: int):
    with pytest.raises(DataError, match="not step 0"):
        _begun(loader(Fails, workers))


@pytest.mark.parametrize(
    ("lengths", "workers"),
    [
        ([7, 3, 30], 2),
        (np.array([20, 20]), 0),
        ((40,), 0),
        slow([7, 3, 30], 0),
        slow(np.array([20, 20]), 2),
        slow((40,), 2),
    ],
    ids=str,
)
def test_a_plan_that_asks_gets_the_runs(workers: int, lengths: Any):
    with loader(Told, workers, {"lengths": lengths}, plan=RunByRun()) as one:
        assert len(one) == len(lengths)
        one.start(0)
        assert [len(indices) for _, indices in one] == list(lengths)
        state = one.state_dict()
    with loader(Told, workers, {"lengths": lengths}, plan=RunByRun()) as one:
        one.load_state_dict(state)
        one.start(0)
        assert len(list(one)) == len(lengths)
    with loader(Told, workers, {"lengths": [40] if len(lengths) > 1 else [39, 1]}, plan=RunByRun()) as one:
        one.load_state_dict(state)
        with pytest.raises(ConfigError, match="runs was"):
            one.start(0)


@pytest.mark.parametrize("workers", [0, slow(1)])
@pytest.mark.parametrize(
    ("lengths", "text"),
    [([39], "are 39 samples"), ([1.5] * 40, "whole numbers"), ([[40]], "whole numbers"), ([-1, 41], ">= 0")],
)
def test_runs_that_are_none_are_refused(workers: int, lengths: Any, text: str):
    with (
        pytest.raises((ConfigError, WorkerStartFailed), match=text),
        loader(Told, workers, {"lengths": lengths}) as one,
    ):
        one.start(0)
