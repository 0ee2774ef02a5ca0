"""All consumers take the same steps, for every small setting there is and for sizes of any magnitude."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.plan.plan import EpochPlan
from tests.slow import examples

FLAGS = (False, True)


def steps_of(plan):
    return {plan.step_count(0, consumer) for consumer in range(plan.consumer_count)}


@pytest.mark.parametrize("even", ["balance", "pad", "drop"])
@pytest.mark.parametrize("shuffle", FLAGS)
@pytest.mark.parametrize("elastic", FLAGS)
def test_every_small_setting_gives_equal_steps(even, shuffle, elastic):
    seen = 0
    for count, size, consumers, drop_last in itertools.product(range(36), (1, 2, 3, 8), (1, 2, 3, 4, 7), FLAGS):
        plan = EpochPlan(
            sample_count=count,
            batch_size=size,
            consumer_count=consumers,
            shuffle=shuffle,
            even=even,
            drop_last=drop_last,
            elastic=elastic,
        )
        steps = steps_of(plan)
        assert len(steps) == 1, (count, size, consumers, drop_last, steps)
        if steps == {0}:
            assert count == 0 or drop_last or even == "drop", "only what leaves samples out may leave no batch"
        else:
            seen += 1
    assert seen > 500


def test_with_even_none_some_of_them_would_not_be_equal():
    settings = itertools.product(range(1, 36), (1, 2, 3, 8), (2, 3, 4, 7))
    unequal = [
        (count, size, consumers)
        for count, size, consumers in settings
        if len(steps_of(EpochPlan(sample_count=count, batch_size=size, consumer_count=consumers, even="none"))) > 1
    ]
    assert len(unequal) > 100


@settings(max_examples=examples(300), derandomize=True, deadline=None, database=None)
@given(
    st.integers(1, 2**62),
    st.integers(1, 10**6),
    st.integers(1, 64),
    st.sampled_from(["balance", "pad", "drop"]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_sizes_of_any_magnitude_give_equal_steps(count, size, consumers, even, flags):
    shuffle, drop_last, elastic = flags
    plan = EpochPlan(
        sample_count=count,
        batch_size=size,
        consumer_count=consumers,
        shuffle=shuffle,
        even=even,
        drop_last=drop_last,
        elastic=elastic,
    )
    steps = steps_of(plan)
    assert len(steps) == 1
    assert steps != {0} or drop_last or even == "drop"
