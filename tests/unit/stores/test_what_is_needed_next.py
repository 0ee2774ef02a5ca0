"""What plans need of a set in a bucket, as stretches; and what of it was taken up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swift_loader.fetcher.choice import Range, coalesced, is_worth_a_range
from swift_loader.fetcher.followers import Course
from swift_loader.fetcher.waiting import Gate
from swift_loader.plan.epoch_lanes import Need
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.runs import Runs
from swift_loader.shards import ShardDataset, create
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.catalog import Catalog, Kind, Shard
from swift_loader.shards.upcoming import FREE, METERED, PlanOfSome, need_of_steps

COUNT = 400


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ShardDataset:
    """Samples of about a kilobyte, of some more than half of the gap that is bridged."""
    samples = [{"x.npy": np.zeros(1000, np.uint8), "cls": number} for number in range(COUNT)]
    folder: Path = tmp_path_factory.mktemp("set")
    create(samples, folder, maxcount=50)
    return ShardDataset(folder)


def covered(need: Need, samples: Any) -> bool:
    """Whether each of the samples is in a stretch."""
    return all(any(first <= one < first + size for first, size, *_ in zip(*need, strict=True)) for one in samples)


def test_steps_are_told_as_stretches_with_their_first_and_last_step(dataset: ShardDataset) -> None:
    batches = [[7, 3, 4, 399, -1], [5, 120, 3], []]
    need = need_of_steps(batches, 10, dataset.catalog)
    told = sorted(zip(*(column.tolist() for column in need), strict=True))
    assert told == [(3, 5, 10, 11), (120, 1, 11, 11), (399, 1, 10, 10)]
    assert need.first_step.tolist() == sorted(need.first_step.tolist())
    assert covered(need, [3, 4, 5, 7, 120, 399])
    assert not len(need_of_steps([[], []], 0, dataset.catalog).first)


def test_stretches_end_with_their_shard(dataset: ShardDataset) -> None:
    need = need_of_steps([list(range(40, 60))], 0, dataset.catalog)
    assert sorted(zip(need.first.tolist(), need.size.tolist(), strict=True)) == [(40, 10), (50, 10)]


@pytest.mark.parametrize("every", [1, 2, 3, 40])
def test_of_a_part_of_a_set_runs_are_told_where_much_of_them_is_wanted(dataset: ShardDataset, every: int) -> None:
    chosen = np.arange(5, COUNT, every)
    ends = np.searchsorted(chosen, np.cumsum(dataset.runs()))
    plan = EpochPlan(sample_count=len(chosen), batch_size=8, seed=3, mix=4, runs=Runs(np.diff(ends, prepend=0)))
    of_some = PlanOfSome(plan, chosen, dataset.catalog)
    need = of_some.need(2, 0)
    assert need is not None
    steps = of_some.indices(2, 0, 0, 99)
    for step, batch in enumerate(steps):
        now = (need.first_step <= step) & (need.last_step >= step)
        assert covered(Need(*(column[now] for column in need)), batch.tolist())
    assert sorted(np.concatenate(steps).tolist()) == chosen.tolist()
    nbytes = need.size.sum() / len(chosen)
    assert nbytes <= 4
    assert of_some.step_count(2, 0) == len(steps)


def test_a_part_in_an_order_of_its_own_is_told_by_steps(dataset: ShardDataset) -> None:
    plan = EpochPlan(sample_count=3, batch_size=2, runs=Runs([3]))
    assert PlanOfSome(plan, [7, 5, 9], dataset.catalog).need(0, 0) is None


def need(*rows: tuple[int, int, int, int]) -> Need:
    return Need(*np.array(rows, np.int64).reshape(-1, 4).T)


def test_stretches_keep_their_numbers_when_more_is_told() -> None:
    course = Course(need((0, 5, 0, 0), (10, 5, 0, 1), (20, 5, 1, 2)))
    assert (course.next(0), course.of(12), course.of(7)) == (0, 1, None)
    course.take(0)
    assert course.next(0) == 1
    course.take(1)
    assert course.next(1) == 2
    more = course.with_more(need((30, 5, 3, 3)))
    assert (more.next(1), more.of(32), more.left, more.steps) == (2, 3, 2, 4)
    assert more.stretch(3) == (30, 5, 3, 3)
    more.take(2)
    assert (more.next(2), more.is_taken(2), more.is_taken(3)) == (3, True, False)
    assert more.next(4) is None


def test_a_gate_lets_in_those_who_came_first() -> None:
    async def run() -> list[str]:
        gate, seen = Gate(2), []

        async def one(name: str, weight: float) -> None:
            turn = gate.ask(weight)
            try:
                await turn
                seen.append(name)
                await asyncio.sleep(0)
            finally:
                gate.leave(turn, weight)

        tasks = [asyncio.ensure_future(one(name, 1.0)) for name in "abcd"]
        await asyncio.sleep(0)
        assert gate.is_full
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(one(name, 0.5) for name in "efgh"))
        assert not gate.is_full
        return seen

    assert asyncio.run(run()) == list("abdefgh")


def test_where_bytes_are_paid_for_little_is_fetched_that_is_not_wanted() -> None:
    large = Shard("large.tar", COUNT, 50_000 * COUNT, 0, 0, 0, bytes(16), Kind.MDS)
    catalog = Catalog.read(catalogs.write([large], generation=0))
    chosen = np.arange(0, COUNT, 2)
    plan = EpochPlan(sample_count=len(chosen), batch_size=8, seed=3, mix=4, runs=Runs([20] * (len(chosen) // 20)))
    sizes = {}
    for terms in (FREE, METERED):
        need = PlanOfSome(plan, chosen, catalog, terms).need(0, 0)
        assert need is not None
        sizes[terms] = int(need.size.sum())
    assert sizes[FREE] > 1.5 * len(chosen)  # half of each run is wanted: all of it comes
    assert sizes[METERED] == len(chosen)


def test_what_is_paid_for_is_not_fetched_twice_so_that_nobody_waits() -> None:
    assert is_worth_a_range(9.0, 100, 0, 0)
    assert not is_worth_a_range(9.0, 100, 0, 0, terms=METERED)
    near = [Range(0, 0, 60_000), Range(0, 100_000, 160_000)]
    assert len(coalesced(near)) == 1
    assert coalesced(near, METERED.gap_nbytes) == near
