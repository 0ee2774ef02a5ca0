"""The loader looks like torch's where people and frameworks expect it."""

from __future__ import annotations

import io
import re

import pytest
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

from swift_loader import ConfigError, SwiftLoader
from tests.datasets import FollowsEpochs, Numbers
from tests.loaders import started
from tests.watching import flat


@pytest.mark.parametrize(("count", "drop_last"), [(64, False), (67, False), (67, True), (3, False)])
def test_what_torchs_loader_tells_of_itself_ours_tells_before_and_after_start(count: int, *, drop_last: bool):
    dataset = Numbers(count)
    theirs = DataLoader(dataset, batch_size=8, num_workers=2, drop_last=drop_last)
    with SwiftLoader.from_dataset(dataset, 8, 1, 2, drop_last=drop_last) as ours:
        for _ in ("before", "after"):
            assert len(ours) == len(theirs)
            assert ours.batch_size == theirs.batch_size
            assert ours.num_workers == theirs.num_workers
            assert ours.dataset is theirs.dataset
            assert len(list(ours)) == len(theirs)  # starts by itself


def test_an_epoch_is_what_torchs_loader_gives():
    dataset = Numbers(67)
    theirs = list(DataLoader(dataset, batch_size=8))
    with SwiftLoader.from_dataset(dataset, 8, 1, 2, shuffle=False) as ours:
        batches = list(ours)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in theirs]
    assert [batch.dtype for batch in batches] == [batch.dtype for batch in theirs]


def test_the_dataset_is_built_once_in_ones_own_process_and_at_first_use():
    with SwiftLoader(Numbers, {"count": 5}, 2, 1, 0) as loader:
        assert loader.dataset is loader.dataset
        assert len(loader.dataset) == 5
        assert loader.dataset[3] == 3


@pytest.fixture
def no_monitor(monkeypatch):
    """Without the thread that tqdm starts with its first bar and never ends."""
    monkeypatch.setattr(tqdm, "monitor_interval", 0)


@pytest.mark.usefixtures("no_monitor")
def test_a_bar_of_tqdm_shows_the_total_and_fills_up():
    shown = io.StringIO()
    with started(Numbers, {"count": 64}, batch_size=8) as loader:
        bar = tqdm(loader, file=shown, mininterval=0)
        assert bar.total == 8
        numbers = flat(bar)
    assert sorted(numbers) == list(range(64))
    assert bar.n == 8
    assert re.search(r"100%\|\S+\| 8/8 ", shown.getvalue())


@pytest.mark.usefixtures("no_monitor")
def test_a_bar_of_tqdm_works_in_a_with_statement_over_one_iteration():
    with started(Numbers, {"count": 64}, batch_size=8) as loader, tqdm(loader, file=io.StringIO()) as bar:
        for done, _ in enumerate(bar):
            assert bar.n <= done + 1
        assert bar.n == bar.total == len(loader)


@pytest.mark.parametrize("way", ["loader", "sampler"])
def test_set_epoch_is_called_as_on_torchs_sampler_and_changes_nothing_where_it_is_due(way: str):
    def streams(*, told: bool) -> list[list[int]]:
        with started(Numbers, {"count": 64}, seed=3) as loader:
            found = []
            for epoch in range(3):
                if told:
                    (loader if way == "loader" else loader.sampler).set_epoch(epoch)
                found.append(flat(loader))
            return found

    assert streams(told=True) == streams(told=False)


@pytest.mark.parametrize("way", ["loader", "sampler"])
def test_set_epoch_goes_to_another_epoch_before_and_after_start(way: str):
    with started(FollowsEpochs, {"count": 16}, batch_size=16) as loader:
        (loader if way == "loader" else loader.sampler).set_epoch(7)
        assert set(flat(loader)) == {7}
        assert set(flat(loader)) == {8}
    with SwiftLoader(FollowsEpochs, {"count": 16}, 16, 1, 1) as loader:
        (loader if way == "loader" else loader.sampler).set_epoch(5)
        loader.start(0)
        assert set(flat(loader)) == {5}


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_before_each_pass_gives_the_order_of_that_epoch_each_time_as_torchs_sampler_does(workers: int):
    dataset = Numbers(64)
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0, seed=3)
    theirs = DataLoader(dataset, batch_size=8, sampler=sampler)
    with started(Numbers, {"count": 64}, seed=3, worker_per_consumer=workers) as ours:
        for told, loader in ((sampler, theirs), (ours, ours)):
            passes = {}
            for epoch in (0, 0, 1, 1, 0, 2, 0):
                told.set_epoch(epoch)
                passes.setdefault(epoch, []).append(flat(loader))
            assert all(again == first for first, *others in passes.values() for again in others)
            assert len({tuple(first) for first, *_ in passes.values()}) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_set_epoch_brings_back_an_epoch_that_was_left_early(workers: int):
    with started(Numbers, {"count": 64}, worker_per_consumer=workers) as loader:
        whole = [flat(loader) for _ in range(3)]
        for epoch in (0, 0, 2, 2, 1):
            loader.set_epoch(epoch)
            iteration = iter(loader)  # held while the next epoch is named: that changes nothing
            assert next(iteration).tolist() == whole[epoch][:8]


def test_the_last_epoch_that_was_named_before_start_is_the_one_that_comes():
    with SwiftLoader(FollowsEpochs, {"count": 16}, 16, 1, 0) as loader:
        for epoch in (3, 2):
            loader.set_epoch(epoch)
        assert set(flat(loader)) == {2}


def test_set_epoch_leaves_the_iteration_alone_that_goes_on():
    with started(FollowsEpochs, {"count": 16}, batch_size=4, worker_per_consumer=0) as loader:
        seen = []
        for batch in loader:
            loader.set_epoch(7)
            seen += batch.tolist()
        assert set(seen) == {0}
        assert set(flat(loader)) == {7}


def test_a_sampler_is_never_sent_back_by_a_framework_that_counts_less():
    with started(FollowsEpochs, {"count": 16}, batch_size=16, worker_per_consumer=0) as loader:
        epochs = []
        for named in (0, 0, 1, 5, 2):
            loader.sampler.set_epoch(named)
            epochs += set(flat(loader))
        assert epochs == [0, 1, 2, 5, 6]


@pytest.mark.parametrize("epoch", [-1, 1.0, "1", None, True])
def test_an_epoch_that_is_no_number_of_an_epoch_is_refused(epoch: object):
    with SwiftLoader(Numbers, {}, 4, 1, 0) as loader, pytest.raises(ConfigError, match="set_epoch takes"):
        loader.set_epoch(epoch)
