"""With rotation each sample comes so many times in an epoch, spread apart, and few are in rotation at a time."""

import time
import timeit
import tracemalloc
from collections import Counter
from itertools import accumulate, chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.errors import ConfigError
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.rotated import Rotation
from tests.slow import examples
from tests.unit.plan import checks
from tests.unit.plan.test_a_plan_keeps_its_promises import evens, plans

examples = settings(max_examples=examples(150), derandomize=True, deadline=None, database=None)
uses = st.integers(2, 8)
keys = st.one_of(st.none(), st.integers(0, 2**128 - 1))
rotations = st.builds(Rotation, st.integers(1, 300), uses, st.integers(1, 200))
sometimes = st.booleans()


def sources(rotation: Rotation, key: int | None) -> list[int]:
    return rotation.repeated(np.arange(rotation.sample_count * rotation.uses, dtype=np.uint64), key).tolist()


def distances(rotation: Rotation, key: int | None) -> np.ndarray:
    """Between one use of a sample and its next, over all samples."""
    places = np.argsort(sources(rotation, key), kind="stable").reshape(rotation.sample_count, rotation.uses)
    return np.diff(places, axis=1)


def most_at_a_time(order: list[int]) -> int:
    """So many samples at most have a use behind them or at hand, and one at hand or before them."""
    first = Counter(dict.fromkeys({index: place for place, index in reversed([*enumerate(order)])}.values(), 1))
    last = Counter({place + 1: 1 for place in {index: place for place, index in enumerate(order)}.values()})
    return max(accumulate(first[place] - last[place] for place in range(len(order))))


@examples
@given(rotations, keys)
def test_every_sample_comes_as_often_as_it_should(rotation, key):
    assert Counter(sources(rotation, key)) == dict.fromkeys(range(rotation.sample_count), rotation.uses)


@examples
@given(rotations, keys)
def test_no_more_samples_than_a_block_has_are_in_rotation_at_a_time(rotation, key):
    assert most_at_a_time(sources(rotation, key)) <= rotation.block


def test_the_count_of_samples_in_rotation_is_not_blind():
    assert most_at_a_time([0, 0, 1, 1]) == 1
    assert most_at_a_time([0, 1, 2, 0, 2, 1]) == 3


@examples
@given(rotations, keys, st.data())
def test_a_place_does_not_depend_on_what_else_is_asked_for(rotation, key, data):
    whole = sources(rotation, key)
    asked = data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=40))
    assert rotation.repeated(np.array(asked, np.uint64), key).tolist() == [whole[place] for place in asked]


@pytest.mark.parametrize("block", [64, 256, 1000, 1024])
@pytest.mark.parametrize("uses", [2, 3])
@pytest.mark.parametrize("sample_count", [5000, 12_345])
def test_two_uses_are_half_a_block_apart(block, uses, sample_count):
    found = distances(Rotation(sample_count, uses, block), key=5)
    assert found.min() >= 0.45 * block
    assert 0.9 * block < np.median(found) < 1.4 * block


@examples
@given(rotations, st.integers(0, 2**128 - 1))
def test_with_more_uses_two_of_them_are_more_than_a_cohort_apart(rotation, key):
    most = min(rotation.block, rotation.sample_count)
    if most >= 2 * rotation.uses:
        assert distances(rotation, key).min() > 0.6 * min(most / 2, 1.5 * most / rotation.uses)


@pytest.mark.parametrize("uses", [2, 3, 5])
@pytest.mark.parametrize(("block", "least"), [(1, 1), (2, 2), (3, 2)])
def test_small_blocks_spread_uses_as_far_as_they_can(block, least, uses):
    count = 30 * block
    assert distances(Rotation(count, uses, block), key=1).min() == least


@pytest.mark.parametrize("uses", [2, 3, 5])
def test_new_samples_come_all_the_time(uses):
    """Whoever makes samples has something to do while others are used again: of 64 places some are always new."""
    order = sources(Rotation(20_000, uses, 1000), key=2)
    is_new = np.zeros(len(order))
    is_new[np.unique(order, return_index=True)[1]] = 1
    inside = is_new[2000 * uses : -2000 * uses]
    shares = inside[: inside.size - inside.size % 64].reshape(-1, 64).mean(axis=1)
    assert abs(shares.mean() - 1 / uses) < 0.02
    assert 0.3 / uses < np.percentile(shares, 1) < np.percentile(shares, 99) < 2 / uses


def test_samples_meet_others_each_time():
    """Of those that share a batch with a sample, few did so before."""
    order = np.array(sources(Rotation(6_000, 3, 600), key=9)).reshape(-1, 30)
    met: list[dict[int, set[int]]] = [{}, {}, {}]
    seen: Counter[int] = Counter()
    for batch in order.tolist():
        for index in batch:
            met[seen[index]][index] = set(batch) - {index}
            seen[index] += 1
    again = [len(met[0][index] & met[1][index]) + len(met[1][index] & met[2][index]) for index in range(6_000)]
    assert np.mean(again) < 8  # of 58; the very same batches would give 58


def test_in_order_each_block_is_gone_through_so_many_times():
    assert sources(Rotation(7, 3, 4), None) == [0, 1, 2, 3] * 3 + [4, 5, 6] * 3


@st.composite
def rotating(draw, **fixed):
    return draw(plans(**fixed, rotation=draw(uses), block=draw(st.integers(1, 120))))


@examples
@given(rotating(even=st.sampled_from(["balance", "pad", "none"])), st.integers(0, 5))
def test_every_index_comes_as_often_as_it_should_unless_samples_are_dropped(plan, epoch):
    consumers = range(plan.consumer_count)
    seen = Counter(chain.from_iterable(checks.real_indices(plan, epoch, consumer) for consumer in consumers))
    assert seen == dict.fromkeys(range(plan.sample_count), plan.rotation)


@examples
@given(rotating(even=evens, drop_last=sometimes))
def test_no_index_comes_more_often_than_it_should(plan):
    consumers = range(plan.consumer_count)
    seen = Counter(chain.from_iterable(checks.real_indices(plan, 0, consumer) for consumer in consumers))
    assert max(seen.values(), default=0) <= plan.rotation
    assert set(seen) <= set(range(plan.sample_count))


@examples
@given(rotating(even=st.just("drop")))
def test_where_shares_are_cut_whole_samples_are_left_out(plan):
    if not plan.elastic:
        consumers = range(plan.consumer_count)
        seen = Counter(chain.from_iterable(checks.real_indices(plan, 0, consumer) for consumer in consumers))
        assert set(seen.values()) == ({plan.rotation} if plan.step_count(0, 0) else set())


@examples
@given(rotating(even=evens, drop_last=sometimes))
def test_a_sample_comes_to_one_consumer_only(plan):
    if not plan.elastic:
        parts = [set(checks.real_indices(plan, 1, consumer)) for consumer in range(plan.consumer_count)]
        assert sum(map(len, parts)) == len(set().union(*parts))


@examples
@given(rotating(even=evens, drop_last=sometimes))
def test_a_consumer_has_no_more_samples_in_rotation_than_a_block_has(plan):
    if not plan.elastic:
        for consumer in range(plan.consumer_count):
            order = checks.real_indices(plan, 0, consumer)
            assert not order or most_at_a_time(order) <= plan.block


@examples
@given(rotating(even=st.sampled_from(["balance", "pad", "drop"]), drop_last=sometimes))
def test_all_consumers_take_the_same_number_of_steps(plan):
    checks.check_steps_are_equal(plan, plan.consumer_count)
    checks.check_batches_are_neither_empty_nor_too_big(plan, plan.batch_size, plan.consumer_count)


@examples
@given(rotating(even=evens, drop_last=sometimes), st.integers(1, 9), st.integers(0, 5))
def test_ranges_of_steps_of_any_length_give_the_same_batches(plan, count, epoch):
    for consumer in range(plan.consumer_count):
        checks.check_blocks_do_not_matter(plan, consumer, count, epoch)


@pytest.mark.parametrize("even", ["balance", "pad", "drop", "none"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_elastic_steps_hold_the_same_samples_whatever_the_number_of_consumers(even, shuffle):
    def make(count):
        return EpochPlan(
            sample_count=131, batch_size=24 // count, consumer_count=count, elastic=True, even=even, shuffle=shuffle,
            rotation=3, block=40,
        )  # fmt: skip

    checks.check_steps_do_not_depend_on_consumers(make, [1, 2, 3, 4, 6, 12])


@pytest.mark.parametrize("settings", [{}, {"elastic": True}, {"shuffle": False}, {"rotation": 100, "block": 10**6}])
def test_a_trillion_samples_cost_what_a_thousand_cost(settings):
    given = {
        "sample_count": 10**12 + 39, "batch_size": 32, "consumer_count": 4, "rotation": 3, "block": 8192,
    } | settings  # fmt: skip
    last = EpochPlan(**given).step_count(0, 0) - 64
    tracemalloc.start()
    try:
        blocks = [EpochPlan(**given).indices(3, 0, first, 64) for first in (0, last // 2, last)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(0 <= index < given["sample_count"] for block in blocks for batch in block for index in batch)
    assert peak < 4_000_000


def test_an_index_costs_well_below_a_microsecond():
    plan = EpochPlan(sample_count=10**9, batch_size=32, consumer_count=4, window=160, rotation=3, block=4096)
    seconds = (
        min(timeit.repeat(lambda: plan.indices(0, 0, 100_000, 128), number=3, repeat=5, timer=time.thread_time)) / 3
    )
    assert seconds / (128 * 32) < 1e-6


def test_an_order_never_changes_between_versions():
    plan = EpochPlan(sample_count=100_000, batch_size=4, consumer_count=2, seed=7, rotation=3, block=1000)
    assert [plan.indices(1, 1, step, 1)[0] for step in (0, 5000)] == PINNED


PINNED = [[76619, 34131, 59712, 51262], [19785, 8096, 93728, 97431]]


def test_a_fingerprint_tells_of_rotation_where_there_is_some():
    plain = EpochPlan(sample_count=9, batch_size=2)
    assert "rotation" not in plain.fingerprint()
    twice = EpochPlan(sample_count=9, batch_size=2, rotation=2, block=4).fingerprint()
    assert (twice["rotation"], twice["block"]) == (2, 4)


@pytest.mark.parametrize("wrong", [{"rotation": 0}, {"block": 0}])
def test_impossible_rotations_are_refused(wrong):
    with pytest.raises(ConfigError, match="rotation >= 1 and block >= 1"):
        EpochPlan(sample_count=9, batch_size=2, **wrong)


def test_too_many_places_are_refused():
    with pytest.raises(ConfigError, match=r"at most 2\*\*62 samples"):
        EpochPlan(sample_count=2**61, batch_size=2, rotation=3)
