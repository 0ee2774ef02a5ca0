"""The search finds the fewest workers that do, on machines whose best is known, and soon enough."""

from __future__ import annotations

import itertools

import pytest

from swift_loader.tuning.looks import Choice
from tests.unit.tuning.machines import Synthetic

QUIET = [
    {"cores": cores, "cpu_s": cpu_s, "consumer_s": consumer_s}
    for cores, cpu_s, consumer_s in itertools.product((1, 2, 4, 16, 64), (0.004, 0.07, 0.3, 1.1), (0.0, 0.02, 0.2))
]


@pytest.mark.parametrize("given", QUIET, ids=str)
def test_on_a_quiet_machine_the_fewest_workers_that_do_are_found(given: dict):
    machine = Synthetic(**given)
    found, _ = machine.tuned()
    assert found == Choice(machine.fewest(within=0.98))
    assert len(machine.asked) <= 30


NOISY = [
    {"cores": 2, "cpu_s": 0.085, "noise": 0.01},
    {"cores": 2, "cpu_s": 0.085, "noise": 0.04},
    {"cores": 8, "cpu_s": 0.2, "noise": 0.03, "crowding": 0.005},
    {"cores": 4, "cpu_s": 0.3, "noise": 0.02, "consumer_s": 0.0},
    {"cores": 4, "cpu_s": 0.5, "noise": 0.02, "drift": 0.02},
    {"cores": 2, "cpu_s": 0.001, "wait_s": 0.1, "noise": 0.03},
]


@pytest.mark.parametrize("given", NOISY, ids=str)
def test_noise_seldom_changes_what_is_found_and_never_by_much(given: dict):
    exact = 0
    for seed in range(25):
        machine = Synthetic(seed=seed, **given)
        found, _ = machine.tuned()
        best = max(machine.rate(Choice(count, found.threads)) for count in range(1, 65))
        assert machine.rate(found) >= (0.97 - given["noise"]) * best
        fewest = machine.fewest(within=0.98, threads=found.threads)
        assert found.workers <= 2 * fewest
        exact += found.workers == fewest
        assert len(machine.asked) <= 80
    assert exact >= 20


def test_samples_that_wait_get_threads_and_no_more_than_they_need():
    machine = Synthetic(cores=2, cpu_s=0.002, wait_s=0.2, consumer_s=0.04)
    found, _ = machine.tuned()
    assert (found.workers, found.threads) == (1, 8)


def test_samples_that_compute_are_not_tried_with_threads():
    machine = Synthetic(cores=8, cpu_s=0.2, wait_s=0.02)
    machine.tuned()
    assert {choice.threads for choice in machine.asked} == {1}


def test_who_wants_no_threads_gets_workers():
    machine = Synthetic(cores=2, cpu_s=0.002, wait_s=0.2)
    found, _ = machine.tuned(may_thread=False)
    assert found == Choice(machine.fewest(within=0.98))
    assert {choice.threads for choice in machine.asked} == {1}


def test_a_dataset_that_does_not_bear_threads_gets_workers():
    machine = Synthetic(cores=2, cpu_s=0.002, wait_s=0.2, bears_threads=False)
    found, evidence = machine.tuned()
    assert found == Choice(machine.fewest(within=0.98))
    assert [choice.threads for choice in evidence.failures] == [2]


def test_where_the_consumer_waits_for_slow_samples_a_longer_queue_stands_for_a_worker():
    machine = Synthetic(cores=8, cpu_s=0.1, consumer_s=0.04, stall=0.2)
    found, _ = machine.tuned()
    assert (found.workers, found.data_queue) == (3, 40)


def test_quick_batches_get_more_messages_where_that_helps():
    found, _ = Synthetic(cores=4, cpu_s=0.0005, consumer_s=0.0, briskness=0.3).tuned()
    assert found.message_queue == 40
    found, _ = Synthetic(cores=4, cpu_s=0.0005, consumer_s=0.0).tuned()
    assert found.message_queue == 10


@pytest.mark.parametrize("consumer_s", [0.0, 0.01])
def test_no_more_workers_are_tried_than_memory_and_the_user_allow(consumer_s: float):
    machine = Synthetic(cores=32, cpu_s=0.5, consumer_s=consumer_s, memory=12 << 30, worker_nbytes=1 << 30)
    found, _ = machine.tuned()
    assert max(choice.workers for choice in machine.asked) == found.workers == 4
    machine = Synthetic(cores=32, cpu_s=0.5, consumer_s=consumer_s)
    found, _ = machine.tuned(most_workers=3)
    assert max(choice.workers for choice in machine.asked) == found.workers == 3


def test_what_it_ends_with_was_looked_at_several_times():
    found, evidence = Synthetic(cores=4, cpu_s=0.1).tuned()
    assert len(evidence.looks[found]) >= 3
