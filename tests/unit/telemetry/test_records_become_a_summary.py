"""A summary says the same of many records as looking at each of them, in constant memory."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

from swift_loader.telemetry.summary import PERCENTILES, TASKS, Tally
from tests.unit.telemetry.epochs import MS, a_record


def test_percentiles_are_those_of_all_batches_within_the_width_of_a_step():
    rng = random.Random(0)
    waits = [int(rng.lognormvariate(15, 2)) for _ in range(5000)]
    tally = Tally()
    for start in range(0, len(waits), 512):
        tally.add([a_record(wait_ns=wait) for wait in waits[start : start + 512]])
    spread = tally.summary().spreads["consumer waits for data"]
    exact = np.percentile(waits, PERCENTILES) / 1e9
    assert spread.percentiles_s == pytest.approx(exact, rel=0.05)
    assert spread.max_s == max(waits) / 1e9
    assert spread.mean_s == pytest.approx(np.mean(waits) / 1e9)


def test_times_of_nothing_and_of_hours_are_counted_too():
    tally = Tally()
    tally.add([a_record(wait_ns=wait) for wait in (0, 0, 0, 10**13)])
    spread = tally.summary().spreads["consumer waits for data"]
    assert spread.percentiles_s[0] == 0
    assert spread.percentiles_s[-1] == pytest.approx(10**4, rel=0.05)
    assert spread.max_s == 10**4


def test_a_worker_is_busy_for_its_share_of_its_own_time():
    tally = Tally()
    tally.add([a_record(0), a_record(1, order_wait_ns=15 * MS, slot_wait_ns=0), a_record(2)])
    zero, one = tally.summary().workers
    assert (zero.number, zero.batches, one.number, one.batches) == (0, 2, 1, 1)
    assert zero.busy_share == pytest.approx(5 / 7.5)
    assert one.busy_share == pytest.approx(5 / 20)
    assert tally.summary().idle_share == pytest.approx((2 + 15 + 2) / (7.5 + 20 + 7.5))
    assert tally.summary().slotless_share == pytest.approx(1 / 35)


def test_the_five_slowest_samples_are_kept_each_once():
    tally = Tally()
    tally.add([a_record(slowest_ns=step * MS, slowest_index=step % 40) for step in range(100)])
    tally.add([a_record(slowest_ns=1, slowest_index=99), a_record(slowest_ns=10**12, slowest_index=-1)])
    assert tally.summary().slowest == tuple((index, (80 + index) / 1e3) for index in (19, 18, 17, 16, 15))


def test_two_tallies_together_are_one():
    first, second, both = Tally(), Tally(), Tally()
    records = [a_record(step, wait_ns=step * MS, slowest_ns=step, slowest_index=step) for step in range(40)]
    first.add(records[:11])
    second.add(records[11:])
    both.add(records)
    first.absorb(second)
    assert first.summary() == both.summary()


def test_shares_of_the_consumers_time_are_of_all_that_passed():
    tally = Tally()
    tally.add([a_record()] * 10)
    summary = tally.summary()
    assert summary.seconds == pytest.approx(0.21)
    assert summary.starved_share == pytest.approx(5 / 21)
    assert summary.batches_per_s == pytest.approx(10 / 0.21)


def test_nothing_has_a_summary_too():
    summary = Tally().summary()
    assert set(summary.spreads) == set(TASKS)
    assert (summary.starved_share, summary.batches_per_s, summary.idle_share, summary.workers) == (0, 0, 0, ())


def test_its_size_does_not_grow_with_the_run():
    tally = Tally()
    sizes = []
    for start in range(3):
        tally.add([a_record(step, slowest_index=start * 1000 + step) for step in range(1000)])
        sizes.append(len(pickle.dumps(tally)))
    assert sizes[2] <= sizes[0] + 100
