"""Rows A7 and A8 of the faults with ``on_error="skip"``: a sample that kills its workers is left out, and told of."""

from __future__ import annotations

from typing import Any

import pytest

from swift_loader import DataError, PoisonedTicket
from tests.deadly_datasets import Crashes, CrashesAsAWhole, CrashesReadingInto, CrashingRecords
from tests.fault.oracle import WORLDS, World, differences, record
from tests.fault.worlds import in_the_other_worlds
from tests.loaders import started
from tests.watching import flat

DEADLY = {13: "SIGSEGV"}


def without(lost: set[int], count: int = 32) -> list[int]:
    return [index for index in range(count) if index not in lost]


def skipping(dataset: Any = Crashes, /, **settings: Any) -> Any:
    kwargs = {"bad": settings.pop("bad", DEADLY), **settings.pop("kwargs", {})}
    return started(dataset, kwargs, **{"shuffle": False, "on_error": "skip", "max_attempts": 2, **settings})


@in_the_other_worlds
def test_a8_only_the_guilty_samples_are_missing_and_the_others_are_what_they_would_be(world: World):
    settings = {"shuffle": True, "random_per": "sample", **world.settings}
    bad = {13: "SIGSEGV", 100: "exit"}

    def consume() -> list:
        with skipping(CrashingRecords, bad=bad, kwargs={"count": 160}, **settings) as loader:
            found = record(loader)
            assert loader.statistics()["samples_skipped"] == 2
        return found

    found = world.run(consume)
    with skipping(CrashingRecords, bad={}, kwargs={"count": 160}, **{**settings, "worker_per_consumer": 0}) as loader:
        whole = record(loader)
    for one, expected in zip(found, whole, strict=True):
        assert one.indices == tuple(index for index in expected.indices if index not in bad)
    hurt = [step for step, one in enumerate(whole) if bad.keys() & set(one.indices)]
    unhurt = [[one for step, one in enumerate(run) if step not in hurt] for run in (found, whole)]
    assert not differences(*unhurt)


def test_a8_what_was_left_out_is_not_tried_again_and_counts_each_time():
    with skipping() as loader:
        assert flat(loader) == without({13})
        lines = loader._runtime._source._lines
        first = sum(line.deaths for line in lines)
        assert first >= 2
        deaths = []
        for epoch in range(1, 4):
            assert flat(loader) == without({13})
            assert loader.statistics()["samples_skipped"] == 1 + epoch
            deaths.append(sum(line.deaths for line in lines))
        # The batch of the second epoch may have been on its way before the sample was known.
        assert first <= deaths[0] <= first + 1
        assert deaths == deaths[:1] * 3


def test_a8_more_than_max_skipped_is_an_error_that_tells_how_the_sample_kills():
    with skipping(max_skipped=0) as loader, pytest.raises(DataError) as caught:
        list(loader)
    assert "samples were left out, more than max_skipped=0" in str(caught.value)
    assert "has killed 2 workers" in str(caught.value)
    assert "SIGSEGV while it fetches sample 13" in str(caught.value)


def test_a8_a_batch_that_loses_all_its_samples_is_an_error():
    with skipping(bad=dict.fromkeys(range(8, 12), "SIGSEGV"), batch_size=4, max_attempts=1) as loader:
        iterator = iter(loader)
        found, errors = [], []
        for _ in range(8):
            try:
                found += next(iterator).tolist()
            except DataError as error:
                errors.append(error)
    (error,) = errors
    assert "all 4 samples of the batch failed" in str(error)
    assert found == without({8, 9, 10, 11})


@pytest.mark.parametrize("count", [1, 3])
def test_a8_with_threads_the_guilty_one_is_found_by_fetching_one_after_the_other(count: int):
    bad = dict.fromkeys((13, 14, 25)[:count], "SIGSEGV")
    with skipping(bad=bad, worker_threads=4) as loader:
        assert flat(loader) == without(set(bad))
        assert loader.statistics()["samples_skipped"] == count


@pytest.mark.parametrize("dataset", [CrashesAsAWhole, CrashesReadingInto])
def test_a8_batches_that_are_made_as_a_whole_are_made_sample_by_sample_once_one_has_killed(dataset: type):
    with skipping(dataset, bad={21: "abort"}) as loader:
        assert flat(loader) == without({21})
        assert flat(loader) == without({21})


def test_a8_with_a_collate_function_the_guilty_sample_is_left_out_too():
    with skipping(collate_fn=Crashes({}).collate) as loader:
        assert [sample for batch in loader for sample in batch.tolist()] == without({13})


def test_a8_one_that_crashes_the_collate_function_is_not_known_and_so_the_batch_is_an_error():
    with skipping(kwargs={"by": "collate"}, collate_fn=Crashes(DEADLY).collate) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(PoisonedTicket, match=r"SIGSEGV while it collates.*Which sample is not known"):
            next(iterator)
        assert next(iterator).tolist() == list(range(16, 24))


def test_a8_a_whole_batch_that_kills_names_no_sample_that_may_be_innocent():
    with started(CrashesAsAWhole, {"bad": DEADLY}, shuffle=False, max_attempts=1) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(PoisonedTicket, match=r"while it fetches\. Which sample is not known"):
            next(iterator)


@pytest.mark.soak
@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize("how", ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "abort", "exit", "SIGKILL"])
def test_a7_whatever_a_sample_does_to_its_worker_it_alone_is_left_out(world: World, how: str):
    bad = {13: how, 29: how}
    assert flat_of(world, bad) == without({13, 29})


def flat_of(world: World, bad: dict[int, str]) -> list[int]:
    def consume() -> list[int]:
        with skipping(bad=bad, **world.settings) as loader:
            return flat(loader)

    return world.run(consume)
