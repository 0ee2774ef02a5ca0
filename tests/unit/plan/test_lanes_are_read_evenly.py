"""What lanes are for: few runs open at a time, needed one after the other, each part once, and batches mixed."""

import time
import timeit
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.errors import ConfigError
from swift_loader.plan.lanes import Lanes, Row
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.runs import Runs, extents
from tests.slow import examples
from tests.unit.plan import checks
from tests.unit.plan.test_lanes_keep_the_promises_of_a_plan import plans
from tests.watching import soon_at_least_once

tried = settings(max_examples=examples(80), derandomize=True, deadline=None, database=None)


def plan_over(lengths, batch_size=256, mix=64, **given):
    runs = Runs(lengths)
    return EpochPlan(sample_count=runs.sample_count, batch_size=batch_size, mix=mix, runs=runs, **given)


def check_need_is_what_is_used(plan, epoch, consumer):
    """Each sample's first and last use lie in the one part that holds it, and each part is used at both its ends."""
    uses = {}
    for step, batch in enumerate(checks.epoch_of(plan, epoch, consumer)):
        for index in batch:
            uses.setdefault(index, []).append(step)
    need = plan.need(epoch, consumer)
    held = []
    for first, size, first_step, last_step in zip(*(column.tolist() for column in need), strict=True):
        steps = [step for index in range(first, first + size) for step in uses.get(index, ())]
        assert (min(steps), max(steps)) == (first_step, last_step)
        held += range(first, first + size)
    assert len(held) == len(set(held))
    assert set(uses) <= set(held)
    assert (np.diff(need.first_step) >= 0).all()


@tried
@given(plans(), st.sampled_from([1, 1, 1, 3]))
def test_what_is_needed_and_when_is_told_exactly(plan, rotation):
    names = ("sample_count", "batch_size", "consumer_count", "seed", "mix", "even", "drop_last", "elastic", "runs")
    plan = EpochPlan(**{name: getattr(plan, name) for name in names}, rotation=rotation, block=20)
    for consumer in range(plan.consumer_count):
        check_need_is_what_is_used(plan, 1, consumer)


def test_the_check_of_what_is_needed_fails_where_a_step_is_wrong(monkeypatch):
    plan = plan_over([10] * 30, batch_size=16, mix=4)
    check_need_is_what_is_used(plan, 0, 0)
    steps = Lanes.steps
    monkeypatch.setattr(Lanes, "steps", lambda *given: (steps(*given)[0] + 1, steps(*given)[1] + 1))
    with pytest.raises(AssertionError):
        check_need_is_what_is_used(plan, 0, 0)


@pytest.mark.parametrize("batch_size", [64, 67, 256, 257, 2 * 67])
def test_batches_of_a_set_sorted_by_class_are_of_as_many_classes_as_there_are_lanes(batch_size):
    lengths = [100] * 1_000  # a run, a class
    batches = checks.epoch_of(plan_over(lengths, batch_size), 0, 0)
    classes = [len({index // 100 for index in batch}) for batch in batches[:-2]]
    assert min(classes) >= 55  # two lanes may be at one class's two ends
    assert np.mean(classes) > 62


@pytest.mark.parametrize("batch_size", [1, 8, 24])
def test_small_batches_take_turns_so_that_a_few_steps_meet_all_lanes(batch_size):
    batches = checks.epoch_of(plan_over([100] * 400, batch_size), 0, 0)
    steps, lanes = Row.of(batch_size, 64)[1:]
    for first in range(0, len(batches) - 2 * steps, steps):
        assert len({index // 100 for batch in batches[first : first + steps] for index in batch}) > 0.75 * lanes
    assert np.mean([len({index // 100 for index in batch}) for batch in batches]) > 0.95 * batch_size


def open_at(need, steps):
    """Samples that are held at each step, of parts that came whole and go after their last use."""
    comes = np.bincount(need.first_step, weights=need.size, minlength=steps + 1)
    goes = np.bincount(need.last_step + 1, weights=need.size, minlength=steps + 1)
    return np.cumsum(comes - goes)[:steps]


def test_no_more_is_open_than_a_run_of_each_lane():
    plan = plan_over([73] * 4_000)
    need, steps = plan.need(0, 0), plan.step_count(0, 0)
    held = open_at(need, steps)
    assert held.max() <= 64 * 73 * 1.1  # a run that begins in a step whose samples are still of the one before it
    of_run = np.bincount(need.first // 73)
    assert of_run.max() <= 3
    assert (of_run > 1).sum() <= 130  # all others are read at once: lanes have two ends


def busiest(plan, consumer, epoch=0):
    """What is needed first in a quarter of a run's life, at most and on average, once all lanes are open."""
    need, steps = plan.need(epoch, consumer), plan.step_count(epoch, consumer)
    life = int((need.last_step - need.first_step)[need.size == plan.runs.lengths.max()].mean()) + 1
    window = max(1, life // 4)
    fresh = np.bincount(need.first_step, weights=need.size, minlength=steps)[life : steps // window * window]
    windows = np.add.reduceat(fresh, np.arange(0, fresh.size, window))[:-1]
    return windows.max() / windows.mean()


EVEN = [
    {"batch_size": 256},
    {"batch_size": 96},
    {"batch_size": 250},
    {"batch_size": 8},
    {"batch_size": 256, "consumer_count": 4},
    {"batch_size": 64, "consumer_count": 4, "elastic": True, "mix": 256},
    {"batch_size": 64, "consumer_count": 7, "elastic": True, "mix": 448},
]


@pytest.mark.parametrize("given", EVEN, ids=str)
def test_runs_are_needed_evenly_over_an_epoch(given):
    plan = plan_over([300] * 3_000, **given)
    assert max(busiest(plan, consumer) for consumer in range(plan.consumer_count)) < 1.5


def test_lanes_whose_lengths_are_whole_runs_are_needed_evenly_too():
    """Without phases all of them would come to their next run at the same step."""
    assert busiest(plan_over([1_000] * 64 * 10, batch_size=64), 0) < 1.2


def test_the_check_of_even_need_fails_without_phases(monkeypatch):
    monkeypatch.setattr(Lanes, "_phases", lambda self, laid, lanes: np.zeros_like(lanes))
    assert busiest(plan_over([1_000] * 64 * 10, batch_size=64), 0) > 3


def test_with_elastic_no_part_is_read_by_two_consumers_where_they_divide_the_lanes():
    plan = plan_over([50] * 2_000, batch_size=64, consumer_count=4, elastic=True, even="drop")
    parts = [
        set(zip(*(column.tolist() for column in plan.need(0, consumer)[:2]), strict=True)) for consumer in range(4)
    ]
    assert sum(map(len, parts)) == len(set.union(*parts))


@pytest.mark.parametrize(
    ("batch_size", "mix", "row"),
    [(256, 64, (1, 64)), (1, 64, (64, 64)), (20, 64, (3, 60)), (67, 64, (1, 64)), (48, 64, (1, 48))],
)
def test_a_row_has_a_lane_for_each_of_its_places_or_as_many_as_are_mixed(batch_size, mix, row):
    assert Row.of(batch_size, mix)[1:] == row


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 1_000)), max_size=20),
    st.integers(1, 300),
)
@settings(max_examples=examples(60), derandomize=True, deadline=None, database=None)
def test_objects_are_cut_into_runs_of_equal_counts_and_about_so_many_bytes(objects, target):
    counts, nbytes = ([each[place] for each in objects] for place in range(2))
    lengths = extents(counts, nbytes, target).tolist()
    assert all(lengths)
    for count, size in objects:
        own, done = [], 0
        while done < count:
            own.append(lengths.pop(0))
            done += own[-1]
        assert done == count, "no run is of two objects"
        if own:
            assert max(own) - min(own) <= 1
            assert len(own) == min(count, max(1, (size + target // 2) // target))
    assert not lengths


def test_a_run_of_no_bytes_is_refused():
    with pytest.raises(ConfigError, match="at least 1 byte, not 0"):
        extents([1], [1], target=0)


def test_a_permutation_of_runs_costs_milliseconds_and_an_index_well_below_a_microsecond():
    lengths = np.random.default_rng(0).integers(60, 100, 8_000)
    plan = plan_over(lengths)

    def made() -> float:
        return min(
            timeit.repeat(lambda: plan_over(lengths).indices(0, 0, 0, 1), number=1, repeat=5, timer=time.thread_time)
        )

    def each() -> float:
        return min(timeit.repeat(lambda: plan.indices(0, 0, 8, 16), number=1, repeat=5, timer=time.thread_time)) / (
            16 * 256
        )

    soon_at_least_once(made, bound_s=10e-3)
    soon_at_least_once(each, bound_s=1e-6)


def test_a_place_far_behind_costs_what_the_first_one_costs():
    """Resuming replays nothing: any step is asked for at once, and a plan of 10^12 needs the memory of its runs."""
    plan = plan_over([10**9] * 1_000, batch_size=32)
    checks.check_memory_is_constant(plan, 10**12)
    tracemalloc.start()
    plan_over([100] * 100_000).need(0, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000_000
