"""The prediction knows three limits (workers, cores, consumer), and what of a batch's time is not its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.telemetry import predict
from swift_loader.telemetry.prediction import fewest
from tests.unit.telemetry.epochs import measured


@pytest.mark.parametrize(
    ("workers", "rate", "starved", "limit"),
    [
        (1, 10, 0.8, "workers"),
        (2, 20, 0.6, "workers"),
        (4, 40, 0.2, "workers"),
        (5, 50, 0.0, "workers"),
        (6, 50, 0.0, "consumer"),
        (64, 50, 0.0, "consumer"),
    ],
)
def test_workers_help_until_the_consumer_is_the_limit(workers: int, rate: float, starved: float, limit: str):
    expected = predict(measured(), workers)
    assert expected.batches_per_s == pytest.approx(rate)
    assert expected.starved_share == pytest.approx(starved, abs=1e-9)
    assert expected.limit == limit or rate == 50


def test_more_workers_than_cores_bring_nothing_where_they_compute():
    few = measured(cores=2.0)
    assert predict(few, 2).batches_per_s == pytest.approx(20)
    assert predict(few, 8).batches_per_s == pytest.approx(20)
    assert predict(few, 8).limit == "cores"


def test_workers_that_wait_need_no_cores():
    waiting = measured(cores=2.0, cpu_s=0.001, busy_s=0.0)
    assert predict(waiting, 64).batches_per_s == pytest.approx(640)


def test_what_workers_waited_for_a_core_is_not_part_of_a_batch():
    """Eight workers on two cores: each batch took 400 ms, of which it ran for 100."""
    crowded = measured(workers=8, cores=2.0, work_s=0.4, fetch_s=0.39, delay_s=0.3, batches_per_s=20.0)
    assert predict(crowded, 1).batches_per_s == pytest.approx(10)
    assert predict(crowded, 8).batches_per_s == pytest.approx(20)


@pytest.mark.parametrize(("used", "alone"), [(20.0, 10), (2.0, 2.5)])
def test_where_the_kernel_is_silent_full_cores_explain_what_was_no_cpu_time(used: float, alone: float):
    crowded = measured(workers=8, cores=2.0, work_s=0.4, fetch_s=0.39, delay_s=None, batches_per_s=used)
    assert predict(crowded, 1).batches_per_s == pytest.approx(alone)


def test_the_consumers_own_threads_need_cores_too():
    hungry = measured(cores=2.0, busy_s=0.0, consumer_cpu_s=0.1)
    assert predict(hungry, 8).batches_per_s == pytest.approx(10)


def test_others_keep_what_they_have():
    shared = measured(cores=2.0, cores_of_others=1.5, busy_s=0.0, batches_per_s=5.0, delay_s=0.1, work_s=0.2)
    assert predict(shared, 1).batches_per_s == pytest.approx(5)
    assert predict(shared, 8).batches_per_s == pytest.approx(5)
    assert predict(shared, 8).limit == "cores"


def test_what_workers_got_of_the_cores_they_will_get_again():
    """The kernel's counts are coarse: others can not have used what we used."""
    assert predict(measured(cores=2.0, cores_of_others=1.5), 1).batches_per_s == pytest.approx(10)


def test_workers_that_mostly_wait_find_a_core_among_others():
    waiting = measured(cores=2.0, cores_of_others=1.99, cpu_s=0.01, busy_s=0.0)
    assert predict(waiting, 8).batches_per_s == pytest.approx(80)
    assert predict(waiting, 64).batches_per_s == pytest.approx(100)
    assert predict(waiting, 64).limit == "cores"


def test_threads_wait_side_by_side_and_compute_one_after_the_other():
    waiting = measured(cpu_s=0.02, work_s=0.1, fetch_s=0.08, busy_s=0.0)
    assert predict(waiting, 1, threads=4).batches_per_s == pytest.approx(1 / (0.02 + 0.08 / 4))
    four = measured(threads=4, cpu_s=0.02, work_s=0.04, fetch_s=0.02, busy_s=0.0)
    assert predict(four, 1, threads=1).batches_per_s == pytest.approx(10)
    assert predict(four, 1, threads=4).batches_per_s == pytest.approx(25)


def test_where_both_starve_more_workers_are_not_promised_anything():
    held_up = measured(workers=4, idle_share=0.5, starved_share=0.4, batches_per_s=12.0)
    assert predict(held_up, 8).batches_per_s == 12
    assert predict(held_up, 8).limit == "order"
    assert predict(held_up, 1).batches_per_s == 10


def test_batches_made_in_process_tell_what_workers_would_bring():
    inline = measured(workers=0, starved_share=0.83)
    assert predict(inline, 1).batches_per_s == pytest.approx(10)


@pytest.mark.parametrize(("starved", "count"), [(0.03, 5), (0.25, 4), (0.9, 1)])
def test_the_fewest_workers_that_do_are_found(starved: float, count: int):
    assert fewest(measured(), starved, 64) == count


def test_where_nothing_helps_the_fewest_that_are_as_good_are_found():
    assert fewest(measured(cores=2.0), 0.03, 64) == 2


def test_where_the_consumer_takes_no_time_the_most_batches_count_and_not_how_long_it_waits():
    endless = measured(cores=16.0, busy_s=0.00002, starved_share=0.9998)
    assert predict(endless, 16).starved_share > 0.99
    assert fewest(endless, 0.03, 64) == 16


times = st.floats(0.0, 1.0)


@given(st.integers(0, 64), st.integers(1, 8), st.floats(0.5, 64), times, times, times, times, times, st.integers(1, 64))
def test_any_epoch_predicts_something_possible(workers, threads, cores, work, cpu, busy, own, others, wanted):
    any_epoch = measured(
        workers=workers, threads=threads, cores=cores, work_s=work, fetch_s=work / 2, cpu_s=cpu, busy_s=busy,
        consumer_cpu_s=own, cores_of_others=others,
    )  # fmt: skip
    expected = predict(any_epoch, wanted, threads)
    assert expected.batches_per_s > 0
    assert 0 <= expected.starved_share <= 1
    assert predict(any_epoch, wanted + 1, threads).batches_per_s >= expected.batches_per_s * (1 - 1e-9)
