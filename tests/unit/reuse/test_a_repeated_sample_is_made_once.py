"""In front of a dataset: what the plan uses several times is made once, and is the same each time."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader import Cached
from swift_loader.plan.ahead import Ahead
from swift_loader.plan.plan import EpochPlan
from swift_loader.reuse.carousel import Carousel, Ground
from swift_loader.reuse.repeated import MADE, REUSED, Repeated, Surroundings
from swift_loader.worker.info import WorkerInfo, set_worker_info, worker_info
from tests.slow import examples


class Counted:
    """Its samples hold their numbers, and random ones; it counts how often each was made."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.made: Counter[int] = Counter()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        self.made[index] += 1
        drawn = (random.random(), float(np.random.rand()), float(worker_info().rng.random()))
        return {"i": index, "x": np.full(20, index, np.int32), "drawn": drawn}


class Worker:
    """What one worker has of a dataset."""

    def __init__(self, dataset, plan: EpochPlan, ground: Ground) -> None:
        self.plan, self.counts, self.told = plan, [0, 0], []
        self.info = WorkerInfo(0, 0, plan.seed, per_sample=False)
        carousel = Carousel(ground, lambda _: True, self.told.append)
        around = Surroundings(
            Ahead(plan, 0, plan.batch_size), plan, self.counts, self.info.made,
            lambda name: getattr(sys.modules[__name__], name),
        )  # fmt: skip
        self.dataset = Repeated(dataset, carousel, around)

    def batch(self, order: int, epoch: int, step: int) -> list:
        before = set_worker_info(self.info)
        self.info.turn_to_batch(epoch, step)
        self.info.seed_generators()
        try:
            self.dataset.turn_to(order, epoch, step)
            return [self.dataset[index] for index in self.plan.indices(epoch, 0, step, 1)[0]]
        finally:
            set_worker_info(before)


@contextmanager
def ground_for(plan: EpochPlan) -> Iterator[Ground]:
    made = Ground(os.memfd_create("index"), os.memfd_create("data"), plan.block, checks=False)
    yield made
    made.close()


def plan_of(count: int = 60, **given) -> EpochPlan:
    return EpochPlan(**{"sample_count": count, "batch_size": 5, "rotation": 3, "block": 12, "seed": 3, **given})


def epoch_of(workers: list[Worker], epoch: int = 0, order: int = 0) -> list:
    """All samples of an epoch; the workers take turns."""
    steps = range(workers[0].plan.step_count(epoch, 0))
    return [sample for step in steps for sample in workers[step % len(workers)].batch(order + step + 1, epoch, step)]


@settings(max_examples=examples(40), derandomize=True, deadline=None, database=None)
@given(st.integers(1, 80), st.integers(1, 9), st.integers(2, 5), st.integers(1, 100), st.booleans(), st.integers(1, 3))
def test_each_sample_is_made_once_and_used_so_often(count, batch_size, rotation, block, shuffle, worker_count):
    plan = plan_of(count, batch_size=batch_size, rotation=rotation, block=block, shuffle=shuffle, even="none")
    dataset = Counted(count)
    with ground_for(plan) as ground:
        workers = [Worker(dataset, plan, ground) for _ in range(worker_count)]
        for epoch in range(2):
            used = Counter(sample["i"] for sample in epoch_of(workers, epoch, order=1000 * epoch))
            assert used == dict.fromkeys(range(count), rotation)
        assert dataset.made == dict.fromkeys(range(count), 2)
        assert sum(worker.counts[MADE] for worker in workers) == 2 * count
        assert sum(worker.counts[REUSED] for worker in workers) == 2 * count * (rotation - 1)
        for worker in workers:
            worker.dataset.close()


@pytest.mark.parametrize("places", [1, 3, 11])
def test_with_less_room_than_the_plan_wants_samples_are_made_again_and_are_the_same(places):
    plan = plan_of()
    with ground_for(plan) as ground:
        worker = Worker(Counted(60), plan, ground)
        whole = epoch_of([worker])
        worker.dataset.close()
    with ground_for(plan_of(block=places)) as ground:
        worker = Worker(Counted(60), plan, ground)
        assert [str(sample) for sample in epoch_of([worker])] == [str(sample) for sample in whole]
        assert worker.counts[MADE] > 60
        worker.dataset.close()


def test_all_uses_of_a_sample_have_the_same_bytes_and_those_of_another_epoch_do_not():
    plan = plan_of()
    with ground_for(plan) as ground:
        worker = Worker(Counted(60), plan, ground)
        drawn: list[dict[int, set]] = [{}, {}]
        for epoch in range(2):
            for sample in epoch_of([worker], epoch, order=1000 * epoch):
                drawn[epoch].setdefault(sample["i"], set()).add(tuple(sample["drawn"]))
        assert all(len(values) == 1 for values in [*drawn[0].values(), *drawn[1].values()])
        assert all(drawn[0][index] != drawn[1][index] for index in range(60))
        worker.dataset.close()


def test_a_sample_that_was_lost_is_made_again_as_it_was():
    plan = plan_of()
    with ground_for(plan) as ground:
        worker = Worker(Counted(60), plan, ground)
        whole = epoch_of([worker])
        worker.dataset.close()
    again = []
    for step in range(plan.step_count(0, 0)):  # nothing is ever found
        with ground_for(plan) as ground:
            worker = Worker(Counted(60), plan, ground)
            again += worker.batch(1, 0, step)
            assert worker.counts[REUSED] == 0
            worker.dataset.close()
    assert [str(sample) for sample in again] == [str(sample) for sample in whole]


def test_changing_a_sample_does_not_change_its_next_use():
    plan = plan_of()
    with ground_for(plan) as ground:
        worker = Worker(Counted(60), plan, ground)
        for step in range(plan.step_count(0, 0)):
            for sample in worker.batch(step + 1, 0, step):
                assert (sample["x"] == sample["i"]).all()
                sample["x"][:] = -1
        worker.dataset.close()


def test_what_comes_after_a_cached_is_done_at_each_use():
    plan, done = plan_of(), []
    dataset = Counted(60)
    with ground_for(plan) as ground:
        worker = Worker(Cached(dataset, then=lambda sample: done.append(sample["i"]) or sample), plan, ground)
        epoch_of([worker])
        assert dataset.made == dict.fromkeys(range(60), 1)
        assert Counter(done) == dict.fromkeys(range(60), 3)
        worker.dataset.close()


class Unpicklable(Counted):
    def __getitem__(self, index: int):
        self.made[index] += 1
        return {"i": index, "lock": threading.Lock()}


def test_samples_that_cannot_be_pickled_are_made_each_time_and_the_user_is_told():
    plan, dataset = plan_of(), Unpicklable(60)
    with ground_for(plan) as ground:
        worker = Worker(dataset, plan, ground)
        epoch_of([worker])
        assert dataset.made == dict.fromkeys(range(60), 3)
        assert "cannot be pickled: TypeError" in worker.told[0]
        worker.dataset.close()


def test_an_error_of_the_dataset_is_the_datasets_own():
    class Failing(Counted):
        def __getitem__(self, index: int):
            raise KeyError(index)

    plan = plan_of()
    with ground_for(plan) as ground:
        worker = Worker(Failing(60), plan, ground)
        with pytest.raises(KeyError):
            worker.batch(1, 0, 0)
        worker.dataset.close()


def test_a_thread_that_is_late_keeps_nothing_of_an_epoch_that_has_passed():
    plan = plan_of()

    class Late(Counted):
        def __getitem__(self, index: int):
            worker.dataset.turn_to(2, 1, 0)  # meanwhile the worker turns to another epoch
            return super().__getitem__(index)

    dataset = Late(60)
    with ground_for(plan) as ground:
        worker = Worker(dataset, plan, ground)
        worker.dataset.turn_to(1, 0, 0)
        index = plan.indices(0, 0, 0, 1)[0][0]
        before = set_worker_info(worker.info)
        _ = worker.dataset[index]
        set_worker_info(before)
        worker.dataset.turn_to(3, 0, 0)
        worker.dataset.dataset = Counted(60)
        before = set_worker_info(worker.info)
        _ = worker.dataset[index]
        set_worker_info(before)
        assert worker.counts == [2, 0]
        worker.dataset.close()
