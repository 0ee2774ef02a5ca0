"""Sampling with replacement: as often as the weights say, equal steps, the same for any block."""

import pickle

import numpy as np
import pytest

from swift_loader.errors import ConfigError
from swift_loader.plan.plan import Plan
from swift_loader.plan.weighted import WeightedPlan
from tests.unit.plan import checks


def check_draws_follow_weights(plan, weights, consumer_count, epochs):
    indices = [i for epoch in range(epochs) for c in range(consumer_count) for i in checks.real_indices(plan, epoch, c)]
    counts = np.bincount(indices, minlength=len(weights))
    weights = np.array(weights)
    assert not counts[weights == 0].any()
    expected = weights[weights > 0] / weights.sum() * len(indices)
    assert checks.deviation(counts[weights > 0], expected, expected.size - 1) < 4


def test_samples_come_as_often_as_their_weights_say():
    weights = [1.0, 0.0, 2.0, 0.5, 3.5]
    check_draws_follow_weights(WeightedPlan(weights, 8, 3, samples_per_epoch=1_000), weights, 3, epochs=20)


def test_the_check_of_weights_fails_on_a_plan_that_draws_all_alike():
    with pytest.raises(AssertionError):
        check_draws_follow_weights(WeightedPlan([1.0] * 5, 8, 3, 1_000), [1.0, 0.0, 2.0, 0.5, 3.5], 3, epochs=20)


def test_samples_without_weight_never_come():
    plan = WeightedPlan([0, 0, 1, 0, 0, 1e-300, 0], 64, samples_per_epoch=100_000)
    assert set(checks.real_indices(plan, 0, 0)) == {2}
    assert set(checks.real_indices(WeightedPlan([0, 1e-320, 0], 8), 0, 0)) == {1}


@pytest.mark.parametrize(("sample_count", "batch_size", "consumer_count"), [(101, 8, 4), (3, 2, 5), (40, 1, 3)])
def test_all_consumers_take_equal_steps_and_blocks_do_not_matter(sample_count, batch_size, consumer_count):
    plan = WeightedPlan(np.ones(20), batch_size, consumer_count, sample_count)
    checks.check_steps_are_equal(plan, consumer_count)
    checks.check_blocks_do_not_matter(plan, 1, 3, epoch=2)
    checks.check_batches_are_neither_empty_nor_too_big(plan, batch_size, consumer_count)
    assert sum(len(checks.real_indices(plan, 0, consumer)) for consumer in range(consumer_count)) == sample_count


def test_epochs_and_seeds_draw_differently_and_consumers_draw_different_parts():
    orders = [checks.real_indices(WeightedPlan(np.ones(99), 8, 2, seed=seed), e, c)
              for seed in (0, 1) for e in (0, 1) for c in (0, 1)]  # fmt: skip
    assert len({tuple(order) for order in orders}) == 8


def test_it_is_a_plan_that_pickles_and_names_its_weights_in_the_fingerprint():
    plan = WeightedPlan([1, 2, 3], 2, seed=5)
    assert isinstance(plan, Plan)
    assert checks.epoch_of(pickle.loads(pickle.dumps(plan)), 1, 0) == checks.epoch_of(plan, 1, 0)
    assert plan.fingerprint() != WeightedPlan([1, 2, 4], 2, seed=5).fingerprint()
    assert repr(plan).startswith("WeightedPlan(3 weights, seed=5")


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [1, float("nan")], [[1, 2]], [float("inf")]])
def test_impossible_weights_are_refused(weights):
    with pytest.raises(ConfigError, match="weights must be"):
        WeightedPlan(weights, 2)


def test_no_draws_are_no_epoch():
    with pytest.raises(ConfigError, match="samples_per_epoch must be at least 1, not 0"):
        WeightedPlan([1, 2], 2, samples_per_epoch=0)
