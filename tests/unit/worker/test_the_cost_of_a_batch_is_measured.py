"""What a batch cost is told part by part, also where samples are not timed one by one; nobody looks if not asked."""

from __future__ import annotations

import time

import numpy as np
import pytest

from swift_loader.worker import fetch
from swift_loader.worker.gauges import Clocks
from tests.unit.orders.simulated import SLOW_NS
from tests.unit.orders.test_orders_are_handed_out import _world
from tests.unit.worker.making import Making

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


@pytest.mark.parametrize("batch_size", [8, 64])
@pytest.mark.parametrize("settings", [{}, {"collate_fn": np.stack}, {"retries": 1}, {"worker_threads": 2}])
def test_the_slowest_sample_is_named_and_its_time_is_fetching(batch_size: int, settings: dict):
    slow = 2 * batch_size + 5
    one = making(Tardy(3 * batch_size, slow), batch_size, **settings)
    for step in range(3):
        made = one.made(step)
    one.maker.close()
    assert made.cost.slowest_index == slow
    assert made.cost.slowest_ns > 0.019 * NS
    assert made.cost.fetch_ns > 0.018 * NS


@pytest.mark.parametrize("settings", [{}, {"collate_fn": np.stack}, {"retries": 1}])
@pytest.mark.parametrize(("batch_size", "every"), [(65, 2), (128, 2), (200, 4), (1024, 16)])
def test_of_large_batches_one_in_so_many_is_timed_sample_by_sample(batch_size: int, every: int, settings: dict):
    one = making(Tardy(3 * every * batch_size, slow=-1), batch_size, **settings)
    costs = [one.made(step).cost for step in range(3 * every)]
    timed = [step for step, cost in enumerate(costs) if cost.slowest_index >= 0]
    assert timed == [0, every, 2 * every]
    assert all(cost.fetch_ns > 0 for cost in costs)


def test_what_was_fetching_is_reckoned_from_the_batch_that_was_timed():
    class Slow(Tardy):
        def __getitem__(self, index):
            time.sleep(1e-4)
            return super().__getitem__(index)

    one = making(Slow(256, slow=-1), 128)
    one.made(0)
    cost = one.made(1).cost
    assert cost.slowest_index == -1
    assert cost.fetch_ns > 0.0128 * NS * 0.8


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
def test_the_clock_is_looked_at_for_64_samples_a_batch_or_not_at_all(measures: bool, monkeypatch):
    one = making(Tardy(3200, slow=-1), 200, benchmark=measures, retries=1)
    looks = []
    monkeypatch.setattr(fetch, "perf_counter_ns", lambda: looks.append(1) or time.perf_counter_ns())
    for step in range(16):
        one.made(step)
    of_samples = len(looks) - 2 * 16  # each batch is timed as a whole
    assert of_samples == (2 * 200 * 4 if measures else 0)


def test_making_a_slot_is_neither_fetching_nor_collating():
    one = making(Tardy(16, slow=-1), 8)
    room = one.berth.room

    def slow_room(nbytes, keep=0):
        begun = time.perf_counter_ns()
        time.sleep(0.01)
        one.berth.slot_ns += time.perf_counter_ns() - begun
        return room(nbytes, keep)

    one.berth.room = slow_room
    begun = time.perf_counter_ns()
    cost = one.made(0).cost
    took_ns = time.perf_counter_ns() - begun
    assert cost.slot_wait_ns >= 10_000_000
    # Counted twice, it would be more than all of it took, however busy the machine is.
    assert cost.fetch_ns + cost.collate_ns + cost.slot_wait_ns <= took_ns


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
    assert worker.book.slotless_ns > 0
    assert all(delivery.slot_wait_ns == 0 for delivery in world.ready)
    world.take()
    world.drop()
    world.feed(worker)
    world.begin(worker)
    world.finish(worker, ns=SLOW_NS)
    world.read(worker)
    assert world.ready[-1].slot_wait_ns > 0
    assert not worker.book.slot_waits
