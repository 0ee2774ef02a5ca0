"""Every sample once, in batches of similar length, in equal steps."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.errors import ConfigError
from swift_loader.plan.bucketed import BucketedPlan
from swift_loader.plan.plan import EpochPlan, Plan
from tests.slow import examples
from tests.unit.plan import checks

LENGTHS = np.random.default_rng(0).lognormal(4, 0.7, 5_000).astype(int)


def check_lengths_are_similar(plan, lengths, consumer_count):
    """Of what a batch is padded to, little is padding; and consumers have similar work at the same step."""
    per_consumer = [checks.real_batches(plan, 0, consumer) for consumer in range(consumer_count)]
    longest = np.array([[lengths[batch].max() for batch in batches] for batches in per_consumer])
    padded = sum(lengths[batch].max() * len(batch) for batches in per_consumer for batch in batches)
    assert lengths.sum() > 0.85 * padded
    assert longest.max(axis=0).sum() < 1.1 * longest.mean() * longest.shape[1]


def test_batches_hold_similar_lengths():
    check_lengths_are_similar(BucketedPlan(LENGTHS, 16, 4, pool=4), LENGTHS, 4)


def test_the_check_of_lengths_fails_on_a_plan_that_does_not_know_them():
    with pytest.raises(AssertionError):
        check_lengths_are_similar(EpochPlan(sample_count=5_000, batch_size=16, consumer_count=4), LENGTHS, 4)


@settings(max_examples=examples(100), derandomize=True, deadline=None, database=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=300),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(1, 5),
    st.sampled_from(["balance", "pad", "none"]),
)
def test_every_index_comes_exactly_once_in_equal_steps(lengths, batch_size, consumer_count, pool, even):
    plan = BucketedPlan(lengths, batch_size, consumer_count, pool=pool, even=even)
    checks.check_every_index_comes_exactly_once(plan, len(lengths), consumer_count, epoch=1)
    checks.check_batches_are_neither_empty_nor_too_big(plan, batch_size, consumer_count)
    checks.check_blocks_do_not_matter(plan, consumer_count - 1, 3)
    if even != "none":
        checks.check_steps_are_equal(plan, consumer_count)


def test_epochs_are_shuffled_and_every_consumer_sees_everything():
    plan = BucketedPlan(range(60), 4, 3, pool=2)
    checks.check_epochs_are_shuffled_and_differ(plan)
    checks.check_every_consumer_sees_everything(plan, 60, 3, epochs=60)


def test_it_is_a_plan_that_pickles_and_names_its_lengths_in_the_fingerprint():
    plan = BucketedPlan([5, 1, 3], 2, seed=5)
    assert isinstance(plan, Plan)
    assert checks.epoch_of(pickle.loads(pickle.dumps(plan)), 1, 0) == checks.epoch_of(plan, 1, 0)
    assert plan.fingerprint() != BucketedPlan([1, 5, 3], 2, seed=5).fingerprint()
    assert repr(plan).startswith("BucketedPlan(seed=5, pool=8")


def test_of_no_lengths_there_are_no_batches():
    plan = BucketedPlan([], 4, 2)
    assert [plan.step_count(0, consumer) for consumer in range(2)] == [0, 0]
    assert plan.indices(0, 0, 0, 3) == []


@pytest.mark.parametrize(("lengths", "pool"), [(["a"], 8), ([[1]], 8), ([1, 2], 0)])
def test_impossible_settings_are_refused(lengths, pool):
    with pytest.raises(ConfigError, match=r"a (bucketed )?plan needs"):
        BucketedPlan(lengths, 2, pool=pool)
