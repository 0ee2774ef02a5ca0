"""The pool without processes: the same batches, and the training process's own generators are left as they were."""

import random

import numpy as np
import pytest
import torch

from swift_loader.consumer.dock import landed
from swift_loader.consumer.inline import InlinePool
from swift_loader.device.host import HostStage
from swift_loader.errors import DataError, LoaderClosed
from swift_loader.orders.tickets import Failed
from swift_loader.plan.position import Position
from swift_loader.settings.loader import LoaderConfig
from swift_loader.wire.recipe import Recipe
from swift_loader.worker.berth import HeapMemory
from swift_loader.worker.info import worker_info
from tests.unit.batch.samples import same
from tests.unit.worker.making import Listed, Making


def _pool(dataset, batch_size=4, **settings):
    config = LoaderConfig.parse(batch_size, 1, 0, False, {"even": "none", **settings})
    pool = InlinePool(Recipe(None, {}, dataset, config, 7, 0))
    pool.open()
    return pool


def _landed(pool):
    return landed(pool.take(), HostStage(None, None, None), looks=False)


def _states():
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()


class Drawing:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 6:
            raise ValueError("six")
        return random.random(), np.random.random(), torch.rand(()), worker_info().rng.random(), torch.ones(9000)


def _seeded():
    random.seed(3), np.random.seed(3), torch.manual_seed(3)


def test_batches_are_those_of_a_worker():
    dataset = Listed([(np.full(30_000, i), str(i), i + 0.5) for i in range(10)])
    pool, making = _pool(dataset), Making(dataset)
    for step in range(3):
        assert same(_landed(pool), making.batch(step))


@pytest.mark.parametrize("random_per", ["batch", "sample"])
def test_the_generators_are_put_back_after_a_batch_and_after_an_error(random_per):
    pool = _pool(Drawing(), random_per=random_per)
    _seeded()
    before = _states()
    first = _landed(pool)
    assert _states() == before
    assert isinstance(pool.take(), Failed)
    assert _states() == before
    assert worker_info() is None
    random.random(), np.random.random(), torch.rand(())
    pool.restart(Position(0, 0))
    assert same(_landed(pool), first)


def test_what_runs_before_the_first_batch_leaves_the_generators_alone_too():
    class Built(Drawing):
        def __init__(self):
            self.drawn = random.random(), np.random.random(), torch.rand(())

    config = LoaderConfig.parse(4, 1, 0, False, {"worker_init": lambda info: random.random(), "even": "none"})
    pool = InlinePool(Recipe(Built, {}, None, config, 7, 0))
    _seeded()
    before = _states()
    pool.open()
    assert _states() == before


def test_a_batch_stays_what_it_was_while_others_are_made():
    pool = _pool(Listed([np.full(30_000, i) for i in range(12)]))
    batches = [_landed(pool) for _ in range(3)]
    assert [batch[:, 0].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_an_error_names_where_it_was_and_the_next_batch_comes():
    pool = _pool(Listed([1, ValueError("bad"), 3, 4, 5, 6]))
    failed = pool.take()
    error = pool.error_of(failed)
    assert isinstance(error, DataError)
    assert isinstance(error.__cause__, ValueError)
    for text in ("bad", "sample 1", "consumer 0", "epoch 0", "step 0"):
        assert text in str(error)
    assert _landed(pool).tolist() == [5, 6]


def test_epochs_follow_each_other_and_the_dataset_is_told():
    class Told(Listed):
        epochs = ()

        def set_epoch(self, epoch):
            self.epochs += (epoch,)

    dataset = Told(list(range(6)))
    pool = _pool(dataset)
    taken = [pool.take().ticket for _ in range(5)]
    assert [(ticket.epoch, ticket.step) for ticket in taken] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    pool.restart(Position(7, 1))
    assert (pool.take().ticket.epoch, dataset.epochs) == (7, (0, 1, 2, 7))


def test_nothing_can_be_taken_from_a_closed_pool():
    pool = _pool(Listed([1, 2]), worker_threads=2)
    pool.take()
    pool.close()
    pool.close()
    with pytest.raises(LoaderClosed):
        pool.take()


def _numbered(size):
    return Listed([(np.full(size, i, np.float32), i) for i in range(12)])


def _first_numbers(batches):
    return [tensor[:, 0].tolist() for tensor, _ in batches]


@pytest.mark.parametrize("size", [4, 20_000])
def test_what_is_kept_of_batches_is_not_written_to(size):
    pool = _pool(_numbered(size))
    kept = [_landed(pool) for _ in range(3)]
    assert _first_numbers(kept) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_small_batches_are_made_in_one_place_and_large_ones_each_in_its_own():
    for size, places in ((4, 1), (20_000, 3)):
        pool, seen = _pool(_numbered(size)), []
        for _ in range(3):
            _landed(pool)
            seen.append(pool._memory)
        assert len({id(one) for one in seen}) == places


def test_a_batch_that_has_not_landed_keeps_its_place():
    pool = _pool(_numbered(4))
    taken = [pool.take() for _ in range(3)]
    stage = HostStage(None, None, None)
    assert _first_numbers(landed(one, stage, looks=False) for one in taken) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]


def test_large_memory_is_not_kept_for_small_batches():
    pool = _pool(_numbered(4))
    pool._memory = HeapMemory(1 << 22)
    _landed(pool)
    assert pool._memory.nbytes < 1 << 12
