"""Random numbers in a batch depend on the seed, the epoch and the step or sample: on nothing else."""

import random

import numpy as np
import pytest
import torch

from swift_loader.worker.info import WorkerInfo, set_worker_info, worker_info
from tests.unit.worker.making import Making


class Drawing:
    """A sample is what the generators give."""

    def __init__(self, making=None):
        self.making = making

    def __len__(self):
        return 12

    def __getitem__(self, index):
        rng = self.making[0].info.rng
        drawn = random.random(), np.random.random(), float(torch.rand(())), rng.random(), rng.random()
        return index, np.array(drawn)


def _making(worker=0, **settings):
    holder = []
    holder.append(Making(Drawing(holder), worker=worker, **settings))
    return holder[0]


@pytest.fixture(autouse=True)
def _own_generators():
    """What the maker does to this process's generators is put back."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def _drawn(making, step, epoch=0):
    """Index -> what was drawn for it."""
    indices, drawn = making.batch(step, epoch)
    return dict(zip(indices.tolist(), drawn.tolist(), strict=True))


@pytest.mark.parametrize("random_per", ["batch", "sample"])
def test_a_batch_draws_the_same_whoever_makes_it_and_however_often(random_per):
    one, other = _making(random_per=random_per), _making(worker=3, random_per=random_per)
    first = _drawn(one, 1)
    assert _drawn(one, 1) == first  # at once again: the order had been taken back and came a second time
    _drawn(other, 0), _drawn(other, 2)
    random.random()
    assert _drawn(other, 1) == first


@pytest.mark.parametrize("random_per", ["batch", "sample"])
def test_epochs_and_batches_and_samples_draw_differently(random_per):
    making = _making(random_per=random_per)
    seen = [tuple(row) for epoch in (0, 1) for step in (0, 1, 2) for row in _drawn(making, step, epoch).values()]
    for column in zip(*seen, strict=True):
        assert len(set(column)) == len(seen)


def test_per_sample_the_batch_does_not_matter():
    by_fours, by_threes = _making(random_per="sample"), _making(random_per="sample", batch_size=3)
    fours = {index: drawn for step in range(3) for index, drawn in _drawn(by_fours, step).items()}
    threes = {index: drawn for step in range(4) for index, drawn in _drawn(by_threes, step).items()}
    assert fours == threes


def test_per_sample_a_retry_draws_the_same_again():
    drawn = []

    class Failing(Drawing):
        def __getitem__(self, index):
            drawn.append(super().__getitem__(index)[1].tolist())
            if len(drawn) == 1:
                raise ValueError
            return index

    holder = []
    holder.append(Making(Failing(holder), random_per="sample", retries=1))
    holder[0].batch(0)
    assert drawn[0] == drawn[1]


def test_a_sample_that_comes_twice_in_a_row_draws_the_same_both_times():
    making = _making(random_per="sample")
    info = making.info
    info.turn_to_batch(0, 0)
    info.turn_to_sample(5)
    first = info.rng.random()
    assert info.rng.random() != first
    info.turn_to_sample(5)
    assert info.rng.random() == first


def test_samples_of_a_batch_share_one_stream():
    making = _making()
    info = making.info
    info.turn_to_batch(0, 0)
    first = info.rng.random()
    info.turn_to_sample(5)
    assert info.rng.random() != first


@pytest.mark.parametrize("random_per", ["batch", "sample"])
def test_with_threads_the_keyed_generator_is_the_samples_own(random_per):
    one, other = (_making(worker_threads=threads, random_per=random_per) for threads in (2, 4))
    try:
        for step in range(3):
            keyed = [{i: drawn[3:] for i, drawn in _drawn(making, step).items()} for making in (one, other)]
            assert keyed[0] == keyed[1]
    finally:
        one.maker.close()
        other.maker.close()


@pytest.mark.parametrize("random_per", ["batch", "sample"])
def test_with_threads_workers_do_not_all_draw_alike_from_the_process_generators(random_per):
    """Forked from one server, they have all inherited the same state."""
    making = _making(worker_threads=2, random_per=random_per)
    try:
        drawn = []
        for step in (0, 1):
            random.seed(1), np.random.seed(1), torch.manual_seed(1)
            drawn += _drawn(making, step).values()
        for column in zip(*drawn, strict=True):
            assert len(set(column)) == len(drawn)
    finally:
        making.maker.close()


def test_other_seeds_and_consumers_draw_differently():
    def first(consumer, seed):
        info = WorkerInfo(consumer, 0, seed, per_sample=False)
        info.turn_to_batch(0, 0)
        info.seed_generators()
        return info.rng.random(), random.random(), np.random.random(), float(torch.rand(()))

    drawn = [first(0, 1), first(1, 1), first(0, 2), first(0, 1 << 63)]
    assert all(len(set(column)) == 4 for column in zip(*drawn, strict=True))


def test_outside_of_workers_there_is_no_info():
    assert worker_info() is None
    info = WorkerInfo(0, 0, 0, per_sample=False)
    assert set_worker_info(info) is None
    assert worker_info() is info
    assert set_worker_info(None) is info
