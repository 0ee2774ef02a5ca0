"""Each promise holds for every plan that hypothesis thinks of, and its check fails on a plan that breaks it."""

import pickle
import time
import timeit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.errors import ConfigError
from swift_loader.plan.plan import EpochPlan, Plan
from tests.slow import examples
from tests.unit.plan import broken, checks
from tests.watching import soon_at_least_once

examples = settings(max_examples=examples(150), derandomize=True, deadline=None, database=None)
consumer_counts = st.integers(1, 9)
always_false = st.just(False)
evens = st.sampled_from(["balance", "pad", "drop", "none"])


@st.composite
def plans(draw, even=evens, drop_last=always_false, **fixed):
    drawn = {
        "sample_count": draw(st.integers(1, 400)),
        "batch_size": draw(st.integers(1, 20)),
        "consumer_count": draw(consumer_counts),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "window": draw(st.integers(0, 60)),
        "mix": draw(st.integers(1, 5)),
        "even": draw(even),
        "drop_last": draw(drop_last),
        "elastic": draw(st.booleans()),
    }
    return _plan_with_enough_samples(**(drawn | fixed))


def _plan_with_enough_samples(**given):
    """The plan; where its settings leave no batch at all, with enough samples for one batch each."""
    try:
        return EpochPlan(**given)
    except ConfigError:
        return EpochPlan(**(given | {"sample_count": given["batch_size"] * given["consumer_count"] * 2}))


@examples
@given(plans(even=st.sampled_from(["balance", "pad", "none"])), st.integers(0, 5))
def test_every_index_comes_exactly_once_unless_samples_are_dropped(plan, epoch):
    checks.check_every_index_comes_exactly_once(plan, plan.sample_count, plan.consumer_count, epoch)


@examples
@given(plans(drop_last=st.booleans()))
def test_no_index_comes_twice_without_being_marked(plan):
    checks.check_no_index_comes_twice(plan, plan.sample_count, plan.consumer_count)


@examples
@given(plans(even=st.sampled_from(["balance", "pad", "drop"]), drop_last=st.booleans()))
def test_all_consumers_take_the_same_number_of_steps(plan):
    checks.check_steps_are_equal(plan, plan.consumer_count)


@examples
@given(plans(drop_last=st.booleans()))
def test_batches_are_neither_empty_nor_too_big(plan):
    checks.check_batches_are_neither_empty_nor_too_big(plan, plan.batch_size, plan.consumer_count)


@examples
@given(plans(drop_last=st.booleans()), st.integers(1, 9), st.integers(0, 5))
def test_blocks_of_any_size_give_the_same_batches(plan, block, epoch):
    for consumer in range(plan.consumer_count):
        checks.check_blocks_do_not_matter(plan, consumer, block, epoch)


@examples
@given(plans(sample_count=200, consumer_count=1, shuffle=True))
def test_the_first_epoch_is_shuffled_and_epochs_differ(plan):
    checks.check_epochs_are_shuffled_and_differ(plan)


@examples
@given(st.integers(300, 900), st.integers(2, 30), st.integers(1, 5), st.integers(0, 99))
def test_reads_stay_in_as_many_neighbourhoods_as_are_mixed(sample_count, window, mix, seed):
    plan = EpochPlan(sample_count=sample_count, batch_size=7, window=window, mix=mix, seed=seed)
    checks.check_reads_stay_near(plan, sample_count, window, mix)


@examples
@given(plans(even=st.sampled_from(["balance", "pad", "none"]), shuffle=True, elastic=False))
def test_shuffled_shares_differ_by_at_most_one_sample(plan):
    checks.check_shares_differ_by_at_most_one(plan, plan.consumer_count)


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("window", [0, 5])
def test_over_epochs_every_consumer_sees_everything(window, elastic):
    plan = EpochPlan(sample_count=50, batch_size=4, consumer_count=3, window=window, mix=2, elastic=elastic)
    checks.check_every_consumer_sees_everything(plan, 50, 3, epochs=60)


@examples
@given(plans(drop_last=st.booleans(), elastic=True), st.integers(1, 4))
def test_elastic_steps_hold_the_same_samples_whatever_the_number_of_consumers(plan, batch_size):
    def make(consumer_count):
        settings = {name: getattr(plan, name) for name in ("seed", "window", "mix", "even", "drop_last", "shuffle")}
        return EpochPlan(
            sample_count=max(plan.sample_count, 12 * batch_size),
            batch_size=12 * batch_size // consumer_count,
            consumer_count=consumer_count,
            elastic=True,
            **settings,
        )

    checks.check_steps_do_not_depend_on_consumers(make, [1, 2, 3, 4, 6, 12])


@pytest.mark.parametrize(
    "settings", [{}, {"window": 0}, {"elastic": True}, {"window": 1, "mix": 1}, {"shuffle": False}]
)
def test_a_trillion_samples_cost_what_a_thousand_cost(settings):
    given = {"sample_count": 10**12 + 39, "batch_size": 32, "consumer_count": 4, "window": 160} | settings
    checks.check_memory_is_constant(EpochPlan(**given), given["sample_count"])


@pytest.mark.parametrize("seed", range(5))
def test_batches_of_a_set_sorted_by_class_mix_classes_with_the_default_windows(seed):
    labels = np.arange(20_000) // 2_000
    plan = EpochPlan(sample_count=20_000, batch_size=32, window=5 * 32, mix=16, seed=seed)
    checks.check_batches_mix_classes(plan, labels)


small = {"sample_count": 61, "batch_size": 4, "consumer_count": 3}


@pytest.mark.parametrize(
    ("check", "plan", "arguments"),
    [
        (checks.check_every_index_comes_exactly_once, broken.DrawsWithReplacement(**small), (61, 3)),
        (checks.check_every_index_comes_exactly_once, broken.HidesRepeats(**small, even="pad"), (61, 3)),
        (checks.check_no_index_comes_twice, broken.DrawsWithReplacement(**small), (61, 3)),
        (checks.check_steps_are_equal, broken.LastConsumerStopsEarly(**small), (3,)),
        (
            checks.check_batches_are_neither_empty_nor_too_big,
            broken.LeavesBatchesEmpty(sample_count=2, batch_size=4, consumer_count=3),
            (4, 3),
        ),
        (checks.check_blocks_do_not_matter, broken.ShufflesBlocks(**small), (0, 2)),
        (checks.check_epochs_are_shuffled_and_differ, broken.FirstEpochInOrder(sample_count=61, batch_size=4), ()),
        (checks.check_epochs_are_shuffled_and_differ, broken.SameEveryEpoch(**small), ()),
        (checks.check_reads_stay_near, EpochPlan(sample_count=600, batch_size=7), (600, 10, 3)),
        (checks.check_reads_stay_near, EpochPlan(sample_count=600, batch_size=7, window=10, mix=6), (600, 10, 3)),
        (checks.check_shares_differ_by_at_most_one, broken.CutsUnequalShares(**small | {"consumer_count": 9}), (9,)),
        (checks.check_every_consumer_sees_everything, broken.KeepsSharesForEver(**small), (61, 3, 60)),
        (checks.check_memory_is_constant, broken.MakesTheWholeEpoch(sample_count=10**6, batch_size=32), (10**6,)),
        (
            checks.check_batches_mix_classes,
            EpochPlan(sample_count=20_000, batch_size=32, window=160, mix=1),
            (np.arange(20_000) // 2_000,),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_each_check_fails_on_a_plan_that_breaks_its_promise(check, plan, arguments):
    with pytest.raises(AssertionError):
        check(plan, *arguments)


def test_a_plan_keeps_its_promises_after_it_was_pickled():
    plan = EpochPlan(**small, window=5)
    plan.indices(0, 0, 0, 1)
    copy = pickle.loads(pickle.dumps(plan))
    assert copy == plan
    assert checks.epoch_of(copy, 2, 1) == checks.epoch_of(plan, 2, 1)
    assert len(pickle.dumps(plan)) < 1_000


def test_a_plan_says_what_it_is():
    plan = EpochPlan(**small)
    assert isinstance(plan, Plan)
    assert "sample_count=61" in repr(plan)
    assert eval(repr(plan)) == plan


def test_a_fingerprint_differs_with_every_setting():
    plan = EpochPlan(**small)
    changed = {
        "sample_count": 62, "batch_size": 5, "consumer_count": 4, "shuffle": False, "seed": 1, "window": 7, "mix": 3,
        "even": "pad", "drop_last": True, "elastic": True,
    }  # fmt: skip
    for name, value in changed.items():
        other = EpochPlan(**{field: getattr(plan, field) for field in changed} | {name: value})
        different = [key for key, ours in plan.fingerprint().items() if other.fingerprint()[key] != ours]
        assert len(different) == 1, name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sample_count": -1}, "sample_count >= 0, not -1"),
        ({"batch_size": -1}, "batch_size >= 1, not -1"),
        ({"consumer_count": 0}, "consumer_count >= 1, not 0"),
        ({"window": -1}, "window >= 0"),
        ({"mix": 0}, "mix >= 1"),
        ({"even": "odd"}, "'balance', 'pad', 'drop' or 'none', not 'odd'"),
        ({"sample_count": 2**63}, r"at most 2\*\*62 samples"),
    ],
)
def test_impossible_settings_are_refused_with_the_number_that_was_given(wrong, message):
    with pytest.raises(ConfigError, match=message):
        EpochPlan(**small | wrong)


@pytest.mark.parametrize("consumer", [-1, 3])
def test_a_consumer_that_is_not_there_is_refused(consumer):
    with pytest.raises(ConfigError, match="not one of the plan's 3"):
        EpochPlan(**small).indices(0, consumer, 0, 1)


def test_an_order_never_changes_between_versions():
    """Resuming after an update, and ranks of different machines, rely on these very numbers."""
    plan = EpochPlan(sample_count=100_000, batch_size=4, consumer_count=2, seed=7, window=20, mix=2)
    assert plan.indices(1, 1, 5, 1) == [[66825, 66822, 66829, 82602]]
    assert EpochPlan(sample_count=100_000, batch_size=4, seed=7).indices(1, 0, 5, 1) == [[15599, 88246, 93830, 38581]]


def test_an_index_costs_well_below_a_microsecond():
    plan = EpochPlan(sample_count=10**9, batch_size=32, consumer_count=4, window=160)

    def seconds_each() -> float:
        return (
            min(timeit.repeat(lambda: plan.indices(0, 0, 0, 128), number=3, repeat=5, timer=time.thread_time))
            / 3
            / (128 * 32)
        )

    soon_at_least_once(seconds_each, bound_s=1e-6)


def test_the_check_of_elastic_steps_fails_on_a_plan_that_is_not_elastic():
    with pytest.raises(AssertionError):
        checks.check_steps_do_not_depend_on_consumers(
            lambda count: EpochPlan(sample_count=61, batch_size=12 // count, consumer_count=count), [1, 2, 3]
        )
