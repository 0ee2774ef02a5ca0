"""Samples that are cheap to read together: with any number of workers and ranks, and whatever happens to workers."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from swift_loader import ConfigError, EpochPlan
from swift_loader.plan.runs import Runs
from swift_loader.testing.nemesis import Nemesis
from swift_loader.testing.oracle import differences, record
from tests.loaders import made, started, stream
from tests.run_datasets import LENGTHS, Disagrees, InRuns, cached
from tests.slow import slow
from tests.traced import Traced
from tests.watching import plain

COUNT = sum(LENGTHS)


def indices_of(batches: list) -> list[list[int]]:
    return [batch["index"][1] for batch in batches]


@pytest.fixture(scope="module")
def whole() -> list:
    """Two epochs, made in this process."""
    return stream(InRuns, epochs=2, worker_per_consumer=0)


def test_the_order_is_the_plans(whole):
    plan = EpochPlan(sample_count=COUNT, batch_size=8, seed=1, mix=64, window=40, runs=Runs(LENGTHS))
    steps = plan.step_count(0, 0)
    assert indices_of(whole) == plan.indices(0, 0, 0, steps) + plan.indices(1, 0, 0, steps)
    assert Counter(chain(*indices_of(whole))) == dict.fromkeys(range(COUNT), 2)


@pytest.mark.parametrize(
    "settings", [slow({"worker_per_consumer": 1}), {"worker_per_consumer": 3}, slow({"start_method": "spawn"})]
)
def test_any_number_of_workers_gives_the_same_batches(settings, whole):
    assert stream(InRuns, epochs=2, **settings) == whole


def test_as_many_are_mixed_as_was_said_and_nearby_shuffle_goes_before_them():
    few, more = (indices_of(stream(InRuns, {"lengths": [10] * 40}, nearby_mix=mix, batch_size=16)) for mix in (2, 16))
    # A batch of two lanes is of two runs, or of two and their next ones.
    assert max(len({index // 10 for index in batch}) for batch in few[:-2]) <= 4
    assert min(len({index // 10 for index in batch}) for batch in more[:-2]) > 8
    for settings in ({"nearby_shuffle": 20}, {"nearby_shuffle": 0}, {"shuffle": False}):
        ours, theirs = (
            stream(dataset, kwargs, **settings) for dataset, kwargs in ((InRuns, {}), (Traced, {"count": COUNT}))
        )
        assert ours == theirs


@pytest.mark.parametrize(
    ("before", "step", "after"), [(2, 17, 0), slow(0, 1, 3), slow(3, 61, 1), slow(2, 62, 2), (1, 100, 2)]
)
def test_an_epoch_goes_on_where_it_was_left(before, step, after, whole):
    found = []
    with started(InRuns, worker_per_consumer=before) as loader:
        epochs = chain(loader, loader)
        found += [plain(next(epochs)) for _ in range(step)]
        state = loader.state_dict()
    with made(InRuns, worker_per_consumer=after) as loader:
        loader.load_state_dict(state)  # before anybody knows the runs
        loader.start(0)
        found += [plain(batch) for _ in range(2) for batch in loader][: len(whole) - step]
    assert found == whole


def _go_on(loader, state) -> None:
    loader.load_state_dict(state)
    loader.start(0)


@pytest.mark.parametrize(
    ("kwargs", "settings", "difference"),
    [
        ({"lengths": LENGTHS[::-1]}, {}, "runs was '[0-9a-f]{16}' and is '[0-9a-f]{16}'"),
        ({}, {"nearby_mix": 32}, "nearby_mix was 64 and is 32"),
        ({}, {"nearby_shuffle": 40}, "runs was '[0-9a-f]{16}' and is None"),
    ],
)
def test_a_state_of_other_runs_is_refused(kwargs, settings, difference):
    with started(InRuns, worker_per_consumer=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    other = made(InRuns, kwargs, worker_per_consumer=0, **settings)
    with other, pytest.raises(ConfigError, match=difference):
        _go_on(other, state)


def global_steps(ranks: int, workers: int) -> list[list[int]]:
    settings = {"batch_size": 16 // ranks, "nb_consumer": ranks, "elastic": True, "worker_per_consumer": workers}
    own = [indices_of(stream(InRuns, consumer=rank, **settings)) for rank in range(ranks)]
    return [list(chain(*step)) for step in zip(*own, strict=True)]


def test_elastic_steps_are_the_same_on_one_two_and_four_ranks():
    one = global_steps(1, workers=0)
    assert sorted(chain(*one)) == list(range(COUNT))
    assert global_steps(2, workers=1) == one
    assert global_steps(4, workers=0) == one


def test_four_ranks_have_each_sample_once():
    found = [
        chain(*indices_of(stream(InRuns, consumer=rank, nb_consumer=4, worker_per_consumer=0))) for rank in range(4)
    ]
    assert sorted(chain(*found)) == list(range(COUNT))


@pytest.mark.parametrize("workers", [slow(1), 3])
@pytest.mark.parametrize("epochs", [2, slow(30)])
def test_a_storm_of_kills_changes_no_bit(workers, epochs):
    with started(InRuns, worker_per_consumer=0) as loader:
        expected = record(loader, epochs)
    with started(InRuns, worker_per_consumer=workers, data_queue_size=1, message_queue_size=1) as loader:
        nemesis = Nemesis(loader, seed=3)
        found = record(loader, epochs, meanwhile=lambda step: step % 6 or nemesis.strike())
    assert nemesis.strikes >= 5 * epochs
    assert not differences(found, expected)


MEMORY = {"medium": "memory", "rotation": 3, "size": 100}


def test_in_rotation_each_sample_comes_as_often_and_is_made_once():
    settings = {"rotation_setting": MEMORY, "random_per": "sample"}
    quiet = stream(InRuns, worker_per_consumer=0, **settings)
    assert Counter(chain(*indices_of(quiet))) == dict.fromkeys(range(COUNT), 3)
    with started(InRuns, worker_per_consumer=2, **settings) as loader:
        assert [plain(batch) for batch in loader] == quiet
        assert loader.statistics()["rotation_reused"] > COUNT


def test_a_cache_changes_nothing(tmp_path):
    settings = {"cache_setting": {"medium": "disk", "prefix": str(tmp_path / "kept")}, "random_per": "sample"}
    quiet = stream(InRuns, epochs=2, worker_per_consumer=0, **settings)
    assert indices_of(quiet) == indices_of(stream(InRuns, epochs=2, worker_per_consumer=0))
    assert indices_of(stream(InRuns, epochs=2, worker_per_consumer=2, **settings)) == indices_of(quiet)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("said", "message"),
    [([3, 4], r"runs\(\) of InRuns are 7 samples together and its len\(\) is 495"), ([-1], "whole numbers >= 0")],
)
def test_runs_that_cannot_be_are_refused(workers, said, message):
    with made(InRuns, {"said": said}, worker_per_consumer=workers) as loader, pytest.raises(ConfigError, match=message):
        loader.start(0)


def test_runs_that_differ_between_workers_are_refused():
    def for_ever():  # the first worker may have made an epoch before the second is there
        with started(Disagrees, worker_per_consumer=2) as loader:
            while True:
                list(loader)

    with pytest.raises(ConfigError, match=r"runs\(\) are Runs\(14 of"):
        for_ever()


def test_a_dataset_in_two_parts_has_the_runs_of_the_first(whole):
    assert stream(cached, worker_per_consumer=0) == whole[: len(whole) // 2]
    assert stream(cached, {"dataset": "traced"}, worker_per_consumer=0) == stream(
        Traced, {"count": COUNT}, worker_per_consumer=0
    )
