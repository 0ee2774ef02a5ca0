"""Statistics, beyond being a bijection: each measure is also seen to fail on a bijection that is a poor shuffle.

Seeds are fixed, so a test that passes once always passes. A deviation is in standard deviations of chi-square.
"""

import tracemalloc
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.plan.permute import RANKED_AT_LEAST, permute, permute_each
from swift_loader.plan.plan import EpochPlan
from tests.slow import examples, slow
from tests.unit.plan import broken, checks

examples = settings(max_examples=examples(150), derandomize=True, deadline=None, database=None)
words = st.integers(0, 2**64 - 1)


def whole(sample_count, **given):
    """A plan whose epoch is one batch."""
    return EpochPlan(sample_count=sample_count, batch_size=sample_count, **given)


@examples
@given(st.integers(1, 9_000), words, st.sampled_from([RANKED_AT_LEAST, 4096]))
def test_every_size_and_key_gives_a_bijection(size, key, ranked):
    values = permute(np.arange(size, dtype=np.uint64), size, np.array([key], np.uint64), ranked)
    assert np.array_equal(np.sort(values), np.arange(size))


@examples
@given(st.integers(1, 6_000), st.lists(words, min_size=1), st.lists(st.integers(0), min_size=1))
def test_a_place_has_the_same_value_whatever_is_asked_for_beside_it(size, keys, places):
    asked = np.array([place % size for place in places], np.uint64)
    own = np.array([keys[place % len(keys)] for place in places], np.uint64)
    alone = [permute(asked[i : i + 1], size, own[i : i + 1])[0] for i in range(len(places))]
    assert permute(asked, size, own).tolist() == alone


several = st.lists(
    st.tuples(st.integers(1, 9_000), words, st.integers(1, 40)), min_size=1, unique_by=lambda one: one[1]
)


@examples
@given(several, st.integers(0, 2**32 - 1))
def test_permutations_of_several_sizes_at_once_are_those_of_each_by_itself(asked, seed):
    draw = np.random.default_rng(seed)
    sizes, keys = (
        np.repeat(np.array([one[at] for one in asked], np.uint64), [one[2] for one in asked]) for at in (0, 1)
    )
    places = draw.integers(0, sizes).astype(np.uint64)
    found = permute_each(places, sizes, keys, RANKED_AT_LEAST)
    for size, key, _ in asked:
        alone = permute(places[keys == key], size, np.array([key], np.uint64), RANKED_AT_LEAST)
        assert found[keys == key].tolist() == alone.tolist()


def test_many_keys_at_once_are_permuted_in_bounded_memory():
    keys = np.arange(1_000, dtype=np.uint64)
    tracemalloc.start()
    values = permute(keys, 4_000, keys)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values[123] == permute(keys[123:124], 4_000, keys[123:124])[0]
    assert peak < 40_000_000


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_all_orders_of_a_tiny_set_are_equally_frequent(size):
    keys = np.arange(60_000, dtype=np.uint64)
    columns = [permute(np.full(keys.shape, place, np.uint64), size, keys) for place in range(size)]
    numbers = sum(column.astype(int) * size**place for place, column in enumerate(columns))
    counts = np.unique(numbers, return_counts=True)[1]
    assert len(counts) == factorial(size)
    assert checks.deviation(counts, np.full(counts.shape, keys.size / factorial(size)), factorial(size) - 1) < 4


@pytest.mark.parametrize("size", [257, slow(400), slow(512), 1_000, slow(1_024), 4_096, slow(5_000)])
def test_pairs_of_places_are_spread_evenly_over_keys_when_permuted_by_rounds(size):
    keys = np.arange(100_000, dtype=np.uint64)
    for first, second in [(0, 1), (0, size // 2), (size - 2, size - 1), (3, 3 + size // 4)]:
        one, other = (
            permute(np.full(keys.shape, place, np.uint64), size, keys, RANKED_AT_LEAST).astype(int)
            for place in (first, second)
        )
        bins = np.bincount(np.arange(1, size) * 50 // size, minlength=50) / (size - 1) * keys.size
        assert checks.deviation(np.bincount((other - one) % size * 50 // size, minlength=50), bins, 49) < 4
        assert checks.deviation(np.bincount(one, minlength=size), np.full(size, keys.size / size), size - 1) < 4


@pytest.mark.parametrize("settings", [{"window": 0}, {"window": 2, "mix": 2}, {"window": 3, "mix": 1}])
@pytest.mark.parametrize("sample_count", [slow(2), 3, slow(5), 8, slow(13)])
def test_every_index_comes_to_every_place_equally_often(sample_count, settings):
    checks.check_positions_are_uniform(whole(sample_count, **settings), sample_count, epochs=2_000)


@pytest.mark.parametrize("sample_count", [3, 5, 8, 13])
def test_any_two_indices_are_neighbours_equally_often(sample_count):
    checks.check_neighbours_are_uniform_over_epochs(whole(sample_count), sample_count, epochs=2_000)


@pytest.mark.parametrize("sample_count", [4_000, 20_011, 2**16, 100_000])
def test_neighbours_in_a_big_epoch_are_far_apart_and_near_as_chance_has_it(sample_count):
    for seed in range(4):
        checks.check_neighbours_are_uniform_within_an_epoch(whole(sample_count, seed=seed), sample_count)


@pytest.mark.parametrize("other", [{"epoch": 1}, {"seed": 1}])
def test_orders_of_neighbouring_epochs_and_seeds_have_nothing_in_common(other):
    count = 20_000
    one = np.array(checks.real_indices(whole(count), 0, 0))
    two = np.array(checks.real_indices(whole(count, seed=other.get("seed", 0)), other.get("epoch", 0), 0))
    distances = np.bincount((one - two) % count * 50 // count, minlength=50)
    assert checks.deviation(distances, np.full(50, count / 50), 49) < 4


def test_the_check_of_positions_fails_on_a_poor_shuffle():
    plan = broken.ShufflesBy(sample_count=8, batch_size=8, way="swaps")
    with pytest.raises(AssertionError):
        checks.check_positions_are_uniform(plan, 8, epochs=2_000)


def test_the_check_of_neighbours_over_epochs_fails_on_a_poor_shuffle():
    plan = broken.ShufflesBy(sample_count=8, batch_size=8, way="rotation")
    checks.check_positions_are_uniform(plan, 8, epochs=2_000)  # which sees nothing wrong with it
    with pytest.raises(AssertionError):
        checks.check_neighbours_are_uniform_over_epochs(plan, 8, epochs=2_000)


@pytest.mark.parametrize("way", ["rotation", "stride"])
def test_the_check_of_neighbours_within_an_epoch_fails_on_a_poor_shuffle(way):
    plan = broken.ShufflesBy(sample_count=4_001, batch_size=4_001, way=way)
    with pytest.raises(AssertionError):
        checks.check_neighbours_are_uniform_within_an_epoch(plan, 4_001)


def test_the_check_of_neighbours_within_an_epoch_fails_on_windows():
    with pytest.raises(AssertionError):
        checks.check_neighbours_are_uniform_within_an_epoch(whole(4_000, window=20, mix=2), 4_000)
