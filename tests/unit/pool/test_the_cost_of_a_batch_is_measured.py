"""What a batch cost is told part by part, also where samples are not timed one by one; nobody looks if not asked."""

from __future__ import annotations

import time

import numpy as np
import pytest

from swift_loader.worker import fetch
from swift_loader.worker.gauges import Clocks
from tests.unit.pool.making import Making
from tests.unit.pool.simulated import SLOW_NS
from tests.unit.pool.test_orders_are_handed_out import _world

NS = 1e9


class Tardy:
    """One sample takes 20 ms, all others next to nothing."""

    def __init__(self, count: int, slow: int, slow_s: float = 0.02) -> None:
        self.count, self.slow, self.slow_s = count, slow, slow_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        if index == self.slow:
            time.sleep(self.slow_s)
        return np.full(4, index, np.float32)


def making(dataset, batch_size, **settings):
    return Making(dataset, batch_size=batch_size, **settings)


@pytest.mark.parametrize("batch_size", [8, 200])
@pytest.mark.parametrize("settings", [{}, {"collate_fn": np.stack}, {"retries": 1}, {"worker_threads": 2}])
def test_the_slowest_sample_is_named_and_its_time_is_fetching(batch_size: int, settings: dict):
    looked_at = 2 * fetch._LOOKED_AT % batch_size if batch_size > fetch._LOOKED_AT else 5
    slow = 2 * batch_size + looked_at
    one = making(Tardy(3 * batch_size, slow), batch_size, **settings)
    for step in range(3):
        made = one.made(step)
    one.maker.close()
    assert made.cost.slowest_index == slow
    assert made.cost.slowest_ns > 0.019 * NS
    assert made.cost.fetch_ns > 0.018 * NS


@pytest.mark.parametrize("settings", [{}, {"collate_fn": np.stack}, {"retries": 1}])
def test_a_slow_sample_among_those_that_were_not_timed_is_known_to_be_there(settings: dict):
    one = making(Tardy(600, slow=2 * 200 + 5, slow_s=0.2), 200, **settings)
    for step in range(3):
        one.maker._fetcher._is_slow = False  # as a busy machine may make it seem
        made = one.made(step)
    assert made.cost.slowest_index == -1
    assert made.cost.slowest_ns > 0.15 * NS
    assert made.cost.fetch_ns > 0.15 * NS


def test_of_large_batches_each_row_is_timed_sooner_or_later():
    one = making(Tardy(1200, slow=-1), 300)
    looked_at = set()
    for step in range(4):
        one.made(step)
        one.maker._fetcher._is_slow = False
        rows = one.maker._fetcher._looked_at(300)
        assert 0 < len(rows) <= fetch._LOOKED_AT
        looked_at.update(rows)
    assert looked_at == set(range(300))


def test_where_samples_are_slow_each_is_timed():
    class Slow(Tardy):
        def __getitem__(self, index):
            time.sleep(1e-4)
            return super().__getitem__(index)

    one = making(Slow(600, slow=2 * 200 + 5), 200)
    for step in range(3):
        made = one.made(step)
    assert made.cost.slowest_index == 2 * 200 + 5


@pytest.mark.parametrize("batch_size", [8, 200])
@pytest.mark.parametrize("settings", [{}, {"collate_fn": np.stack}, {"retries": 1}, {"worker_threads": 2}])
def test_where_nobody_wants_to_know_samples_are_not_timed(batch_size: int, settings: dict):
    one = making(Tardy(3 * batch_size, slow=5), batch_size, benchmark=False, **settings)
    for step in range(3):
        made = one.made(step)
        cost = made.cost
        assert (cost.fetch_ns, cost.slowest_ns, cost.slowest_index) == (0, 0, -1)
    one.maker.close()


@pytest.mark.parametrize("measures", [True, False])
def test_the_clock_is_looked_at_so_often_for_however_many_samples_or_not_at_all(measures: bool, monkeypatch):
    one = making(Tardy(600, slow=-1), 200, benchmark=measures, retries=1)
    looks = []
    monkeypatch.setattr(fetch, "perf_counter_ns", lambda: looks.append(1) or time.perf_counter_ns())
    counts = []
    for step in range(3):
        looks.clear()
        one.maker._fetcher._is_slow = False
        one.made(step)
        counts.append(len(looks))
    # All rows but once in a while; after that some of them: of the third batch those that are left from row 192 on.
    assert counts == ([402, 99, 11] if measures else [2, 2, 2])


def test_making_a_slot_is_neither_fetching_nor_collating():
    one = making(Tardy(16, slow=-1), 8)
    room = one.berth.room

    def slow_room(nbytes, keep=0):
        time.sleep(0.01)
        one.berth.slot_ns += 10_000_000
        return room(nbytes, keep)

    one.berth.room = slow_room
    made = one.made(0)
    assert made.cost.slot_wait_ns >= 10_000_000
    assert made.cost.collate_ns < 0.009 * NS + max(0, made.cost.slot_wait_ns - 10_000_000)


def test_a_worker_tells_how_long_it_had_a_core():
    clocks = Clocks()
    begun = time.process_time_ns()
    while time.process_time_ns() - begun < 20_000_000:
        pass
    assert clocks.since(100) == (0, 0)  # a look costs more than so quick a batch
    cpu_ns, delay_ns = clocks.since(5_000_000)
    assert 20_000_000 <= cpu_ns < 10 * NS
    assert delay_ns >= 0
    clocks.close()
    clocks.close()
    assert clocks.since(5_000_000)[1] == 0


def test_an_order_that_had_to_wait_for_a_slot_says_so():
    world = _world(SLOW_NS, slots=2, data_queue_size=99)
    worker = world.workers[0]
    world.feed(worker)
    for _ in range(2):
        world.begin(worker)
        world.finish(worker, ns=SLOW_NS)
        world.read(worker)
    world.feed(worker)  # both slots are full
    assert worker.line.slotless_ns > 0
    assert all(delivery.slot_wait_ns == 0 for delivery in world.ready)
    world.take()
    world.drop()
    world.feed(worker)
    world.begin(worker)
    world.finish(worker, ns=SLOW_NS)
    world.read(worker)
    assert world.ready[-1].slot_wait_ns > 0
    assert not worker.line.slot_waits
