"""What holds for every plan holds for lanes over runs: of any lengths, none or one among them, for any settings."""

import pickle
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.errors import ConfigError
from swift_loader.plan.lanes import Lanes, Row
from swift_loader.plan.plan import EpochPlan, Plan
from swift_loader.plan.runs import Runs
from swift_loader.plan.seeding import order_key
from tests.slow import examples
from tests.unit.plan import checks

tried = settings(max_examples=examples(80), derandomize=True, deadline=None, database=None)
evens = ["balance", "pad", "drop", "none"]
lengths_of_runs = st.one_of(
    st.lists(st.integers(0, 30), min_size=1, max_size=30),
    st.builds(lambda length, count: [length] * count, st.integers(1, 20), st.integers(1, 30)),
    st.lists(st.integers(0, 1), min_size=1, max_size=60),
    st.integers(1, 300).map(lambda length: [length]),
    st.integers(257, 700).map(lambda length: [length, 300]),
).filter(any)


@st.composite
def plans(draw, **fixed):
    runs = Runs(draw(lengths_of_runs))
    drawn = {
        "batch_size": draw(st.one_of(st.integers(1, 20), st.sampled_from([1, 7, 61, 67, 127, 500]))),
        "consumer_count": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "mix": draw(st.integers(1, 80)),
        "even": draw(st.sampled_from(evens)),
        "drop_last": draw(st.booleans()),
        "elastic": draw(st.booleans()),
    }
    return EpochPlan(sample_count=runs.sample_count, runs=runs, **(drawn | fixed))


@tried
@given(plans(drop_last=False), st.integers(0, 5))
def test_every_index_comes_exactly_once_unless_samples_are_dropped(plan, epoch):
    if plan.even == "drop":
        checks.check_no_index_comes_twice(plan, plan.sample_count, plan.consumer_count, epoch)
    else:
        checks.check_every_index_comes_exactly_once(plan, plan.sample_count, plan.consumer_count, epoch)


@tried
@given(plans())
def test_no_index_comes_twice_without_being_marked(plan):
    checks.check_no_index_comes_twice(plan, plan.sample_count, plan.consumer_count)


@tried
@given(plans())
def test_steps_and_sizes_of_batches_are_those_of_any_other_order(plan):
    """`even`, `drop_last` and `elastic` deal out places, whatever stands there."""
    names = ("sample_count", "batch_size", "consumer_count", "even", "drop_last", "elastic")
    windows = EpochPlan(**{name: getattr(plan, name) for name in names})
    for consumer in range(plan.consumer_count):
        ours, theirs = (checks.epoch_of(each, 0, consumer) for each in (plan, windows))
        assert list(map(len, ours)) == list(map(len, theirs))
        steps = range(len(ours))
        assert [plan.mask(0, consumer, step) for step in steps] == [windows.mask(0, consumer, step) for step in steps]


@tried
@given(plans(), st.integers(1, 9), st.integers(0, 5))
def test_blocks_of_any_size_give_the_same_batches(plan, block, epoch):
    for consumer in range(plan.consumer_count):
        checks.check_blocks_do_not_matter(plan, consumer, block, epoch)


@tried
@given(plans(elastic=True), st.integers(1, 12))
def test_elastic_steps_are_the_same_in_the_same_order_whatever_the_number_of_consumers(plan, batch_size):
    """Full steps; of the last ones, which `even` cuts, the samples are the same, and in the same order as well."""
    names = ("sample_count", "seed", "mix", "even", "drop_last", "elastic", "runs")
    kept = {name: getattr(plan, name) for name in names}
    seen = []
    for count in (1, 2, 4, 8):
        other = EpochPlan(**kept, batch_size=batch_size * 8 // count, consumer_count=count)
        consumers = [checks.real_batches(other, 1, consumer) for consumer in range(count)]
        most = max(map(len, consumers))
        seen.append([list(chain(*(own[step] for own in consumers if step < len(own)))) for step in range(most)])
    assert all(steps == seen[0] for steps in seen)


@tried
@given(plans(even="balance", drop_last=False), st.integers(1, 4), st.integers(1, 40))
def test_in_rotation_each_index_comes_as_often_and_to_the_same_consumer(plan, rotation, block):
    names = ("sample_count", "batch_size", "consumer_count", "seed", "mix", "even", "elastic", "runs")
    again = EpochPlan(**{name: getattr(plan, name) for name in names}, rotation=rotation, block=block)
    of_consumers = [checks.real_indices(again, 0, consumer) for consumer in range(plan.consumer_count)]
    together = np.concatenate(of_consumers).astype(int)
    assert np.bincount(together, minlength=plan.sample_count).tolist() == [rotation] * plan.sample_count
    if not plan.elastic:
        assert sum(len(set(own)) for own in of_consumers) == plan.sample_count


def test_without_shuffling_runs_are_in_their_order():
    plan = EpochPlan(sample_count=10, batch_size=4, shuffle=False, even="none", runs=Runs([3, 7]))
    assert checks.epoch_of(plan, 0, 0) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert plan.need(0, 0) is None


def test_epochs_are_shuffled_and_every_consumer_sees_everything():
    plan = EpochPlan(sample_count=60, batch_size=4, consumer_count=3, mix=2, runs=Runs([6] * 10))
    checks.check_epochs_are_shuffled_and_differ(plan)
    checks.check_every_consumer_sees_everything(plan, 60, 3, epochs=60)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("even", evens)
def test_of_no_samples_there_are_no_batches(even, drop_last):
    plan = EpochPlan(sample_count=0, batch_size=4, consumer_count=2, even=even, drop_last=drop_last, runs=Runs([0, 0]))
    assert checks.epoch_of(plan, 0, 1) == []
    assert plan.need(0, 1).first.size == 0


def test_it_keeps_its_promises_after_it_was_pickled_and_does_not_carry_what_it_remembers():
    plan = EpochPlan(sample_count=300_000, batch_size=64, runs=Runs([1_000] * 300))
    fresh = len(pickle.dumps(plan))
    one = plan.indices(3, 0, 5, 2)
    copy = pickle.loads(pickle.dumps(plan))
    assert copy == plan
    assert hash(copy) == hash(plan)
    assert copy.indices(3, 0, 5, 2) == one
    assert isinstance(copy, Plan)
    assert len(pickle.dumps(plan)) < fresh + 1_000


def test_the_fingerprint_names_the_runs_and_without_them_it_is_what_it_was():
    one, other = (EpochPlan(sample_count=10, batch_size=2, runs=Runs(runs)) for runs in ([3, 7], [7, 3]))
    assert one.fingerprint().keys() == other.fingerprint().keys()
    assert [name for name in one.fingerprint() if one.fingerprint()[name] != other.fingerprint()[name]] == ["runs"]
    assert "runs" not in EpochPlan(sample_count=10, batch_size=2).fingerprint()


@pytest.mark.parametrize("runs", [[-1, 3], [1.5], [[1]], ["a"], [2**62, 2**62]])
def test_runs_that_are_no_lengths_are_refused(runs):
    with pytest.raises(ConfigError, match=r"runs (are one list of whole numbers|have at most)"):
        Runs(runs)


def test_runs_of_another_number_of_samples_are_refused():
    with pytest.raises(ConfigError, match="runs of 9 samples together are not those of 10"):
        EpochPlan(sample_count=10, batch_size=2, runs=Runs([4, 5]))


@given(lengths_of_runs, st.data())
@settings(max_examples=examples(100), derandomize=True, deadline=None, database=None)
def test_any_stretch_of_the_sequence_can_be_a_share(lengths, data):
    runs = Runs(lengths)
    origin = data.draw(st.integers(0, runs.sample_count - 1))
    count = data.draw(st.integers(1, runs.sample_count - origin))
    places = np.arange(origin, origin + count, dtype=np.uint64)
    lanes = Lanes(runs.laid(order_key(1, 2)), origin, count, Row.of(data.draw(st.integers(1, 40)), 16), order_key(1, 2))
    assert len(set(lanes(places).tolist())) == count


def test_an_order_of_lanes_never_changes_between_versions():
    """Resuming after an update, and ranks of different machines, rely on these very numbers."""
    plan = EpochPlan(
        sample_count=99_750, batch_size=4, consumer_count=2, seed=7, mix=3, runs=Runs([250, 1_000, 80] * 75)
    )
    assert plan.indices(1, 1, 5, 1) == [[30509, 80986, 76898, 77011]]
    elastic = EpochPlan(
        sample_count=99_750, batch_size=2, consumer_count=2, seed=7, mix=64, elastic=True, runs=Runs([399] * 250)
    )
    assert elastic.indices(1, 1, 5, 2) == [[98824, 78552], [68919, 30714]]
