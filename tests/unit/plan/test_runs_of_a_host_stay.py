"""With groups, each part of an epoch has the same runs in all epochs, in another order; the rest is as without."""

from __future__ import annotations

import numpy as np
import pytest

from swift_loader import ConfigError
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.runs import Runs

LENGTHS = [40, 0, 33, 50, 41] * 24


def plan(groups: int, consumers: int, **more: object) -> EpochPlan:
    runs = Runs(LENGTHS, groups)
    return EpochPlan(
        sample_count=runs.sample_count, batch_size=16, consumer_count=consumers, seed=5, mix=8, runs=runs, **more
    )


def samples_of(of: EpochPlan, epoch: int, consumers: range) -> set[int]:
    each = (of.indices(epoch, consumer, 0, of.step_count(epoch, consumer)) for consumer in consumers)
    return {index for steps in each for step in steps for index in step}


@pytest.mark.parametrize(
    ("groups", "consumers", "elastic"), [(2, 2, False), (2, 4, False), (4, 4, False), (2, 4, True)]
)
def test_a_host_has_the_same_samples_in_each_epoch(groups: int, consumers: int, elastic: bool) -> None:
    of, each = plan(groups, consumers, elastic=elastic, even="none"), consumers // groups
    for host in range(groups):
        ranks = range(host * each, (host + 1) * each)
        first = samples_of(of, 0, ranks)
        for epoch in (1, 7):
            again = samples_of(of, epoch, ranks)
            # But for what two hosts share at their ends: about a run on each side.
            assert len(first & again) > len(first) - 3 * max(LENGTHS)
            assert of.indices(epoch, ranks[0], 0, 3) != of.indices(0, ranks[0], 0, 3)
    for epoch in (0, 1):
        assert samples_of(of, epoch, range(consumers)) == set(range(of.sample_count))


def test_without_groups_a_host_has_others_each_time_and_the_order_is_what_it_was() -> None:
    alone = plan(1, 4)
    assert len(samples_of(alone, 0, range(1)) & samples_of(alone, 1, range(1))) < alone.sample_count / 4 / 2
    assert "runs" in alone.fingerprint()
    assert alone.fingerprint() != plan(2, 4).fingerprint()
    assert Runs(LENGTHS).digest != Runs(LENGTHS, 2).digest
    assert Runs(Runs(LENGTHS, 2)) == Runs(LENGTHS, 2) != Runs(LENGTHS)
    with pytest.raises(ConfigError, match="at least 1 group"):
        Runs(LENGTHS, 0)


def test_more_groups_than_runs_are_no_trouble() -> None:
    few = EpochPlan(sample_count=9, batch_size=2, consumer_count=1, seed=1, mix=4, runs=Runs([4, 5], 6))
    assert samples_of(few, 0, range(1)) == set(range(9))
    assert np.array_equal(Runs([4, 5], 6).laid(7, 8).begin, Runs([4, 5], 6).laid(7, 8).begin)
