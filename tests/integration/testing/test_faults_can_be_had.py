"""The public faults do what they are called, as often as they were told, and the oracle tells what came of it."""

from __future__ import annotations

import gc
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from swift_loader import ConfigError, DataError, PoisonedTicket, SwiftLoader
from swift_loader.testing import Delivered, Faulty, InjectedFault, Nemesis, delivered, differences, record
from tests.datasets import Slow
from tests.traced import Traced
from tests.watching import until

SHORT = {"data_queue_size": 1, "message_queue_size": 1, "max_buffer_size": 0}


def loader_of(dataset: object, workers: int = 2, **settings: object) -> SwiftLoader:
    return SwiftLoader.from_dataset(dataset, 8, 1, workers, seed=1, **settings)


def test_a_fault_happens_as_often_as_it_was_told_in_all_copies_together():
    dataset = Faulty(list(range(10)), {3: "raise"}, times=2)
    copy = pickle.loads(pickle.dumps(dataset))
    for one in (dataset, copy):
        with pytest.raises(InjectedFault, match="sample 3"):
            one[3]
    assert (dataset[3], copy[3], dataset[4]) == (3, 3, 4)
    assert copy.happened == dataset.happened == {3: 2}
    always = Faulty([0, 1], {1: "raise"}, times=None)
    for _ in range(3):
        with pytest.raises(InjectedFault):
            always[1]
    assert always.happened == {1: 3}


def test_where_it_counts_goes_with_it_unless_it_was_given(tmp_path):
    dataset = Faulty([1], {0: "raise"})
    folder = Path(dataset._folder)
    assert folder.is_dir()
    copy = pickle.loads(pickle.dumps(dataset))
    del copy
    gc.collect()
    assert folder.is_dir()
    del dataset
    gc.collect()
    assert not folder.exists()
    Faulty([1], {0: "raise"}, folder=tmp_path)
    gc.collect()
    assert tmp_path.is_dir()


def test_deaths_and_standstills_lose_nothing():
    quiet = Traced(160)
    with loader_of(quiet) as loader:
        loader.start(0)
        expected = record(loader)
    faults = {3: "kill", 29: "segfault", 57: "abort", 85: "exit", 111: "stop"}
    dataset = Faulty(quiet, {**faults, 140: lambda index: None})
    with loader_of(dataset, timeout_s=10) as loader:
        loader.start(0)
        assert differences(record(loader), expected) == []
    assert dataset.happened == dict.fromkeys([*faults, 140], 1)


def test_a_sample_that_cannot_be_sent_is_told():
    with loader_of(Faulty(list(range(16)), {5: "unsendable"}, times=None), collate_fn=list, validate=False) as loader:
        loader.start(0)
        batches, told = iter(loader), []
        for _ in range(2):
            try:
                next(batches)
            except DataError as error:
                told.append(str(error))
    assert len(told) == 1
    assert "lock" in told[0]


@pytest.mark.filterwarnings("ignore:swift-worker:RuntimeWarning")
@pytest.mark.parametrize("fault", ["hang", "loop"])
def test_what_never_ends_is_ended(fault: str):
    dataset = Faulty(Traced(32), {5: fault}, times=None)
    settings = {"timeout_s": 0.6, "max_attempts": 1, "shuffle": False}
    with loader_of(dataset, **settings) as loader, pytest.raises(PoisonedTicket, match="sample 5"):
        loader.start(0)


def test_what_is_slow_or_leaks_is_delivered_all_the_same():
    dataset = Faulty([np.ones(2), np.zeros(2)], {0: "slow", 1: "leak"})
    assert dataset[0].tolist() == [1, 1]
    assert dataset[1].tolist() == [0, 0]
    assert len(dataset) == 2


def test_an_unknown_fault_is_refused():
    with pytest.raises(ConfigError, match="no fault 'melt'"):
        Faulty([1], {0: "melt"})


def test_a_faulty_dataset_does_as_the_one_within():
    class Told(list):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __getitems__(self, indices: list[int]) -> list:
            raise AssertionError("samples must be asked for one by one")

    inner = Told([1, 2])
    dataset = Faulty(inner, {})
    dataset.set_epoch(4)
    assert inner.epoch == 4
    assert not hasattr(dataset, "__getitems__")
    assert not hasattr(dataset, "read_into")


def test_a_nemesis_strikes_and_nothing_is_lost():
    settings = {"batch_size": 8, "nb_consumer": 1, "worker_per_consumer": 2, "shuffle": False, **SHORT}
    with SwiftLoader(Slow, {"count": 480, "seconds": 0.004}, **settings) as loader:
        loader.start(0)
        before = set(until(lambda: loader.worker_pids if len(loader.worker_pids) == 2 else None))
        with Nemesis(loader, every_s=(0.1, 0.2), faults=["kill", "segfault"], seed=3) as nemesis:
            found = [batch.tolist() for batch in loader]
        until(lambda: before - set(loader.worker_pids), "one of the first is gone")
    assert nemesis.strikes >= 2
    assert found == [list(range(first, first + 8)) for first in range(0, 480, 8)]


def test_a_nemesis_strikes_when_it_is_told_to():
    with loader_of(Traced(160), workers=0) as quiet:
        quiet.start(0)
        expected = record(quiet)
    with loader_of(Traced(160), **SHORT) as loader:
        nemesis = Nemesis(loader)
        assert nemesis.strike() == 0  # nobody is there
        assert loader.worker_pids == []
        loader.start(0)
        before = set(until(lambda: loader.worker_pids if len(loader.worker_pids) == 2 else None))
        strikes = {2: 1, 9: 2}
        found = record(loader, meanwhile=lambda step: step in strikes and nemesis.strike(strikes[step]))
        assert nemesis.strikes >= 2
        until(lambda: not before & set(loader.worker_pids), "both are gone")
    assert loader.worker_pids == []
    assert differences(found, expected) == []


def test_without_workers_there_is_nobody_to_strike():
    with loader_of(Traced(16), workers=0) as loader:
        loader.start(0)
        assert loader.worker_pids == []


def run(*crcs: int) -> list[Delivered]:
    return [Delivered(0, step, (), crc) for step, crc in enumerate(crcs)]


def test_batches_that_do_not_say_what_they_hold_are_compared_by_their_bytes():
    assert differences(run(1, 2, 3), run(1, 2, 3)) == []
    assert differences(run(1, 2), run(1, 2, 3)) == ["2 batches came, expected were 3"]
    assert differences(run(1, 4, 3), run(1, 2, 3)) == ["epoch 0, step 1 holds other bytes"]
    assert differences(run(3, 2, 1), run(1, 2, 3), in_order=False) == []


def test_any_loader_is_recorded_and_batches_may_say_in_their_own_way_what_they_hold():
    found = record(DataLoader(list(range(8)), 4), epochs=2, indices_of=lambda batch: batch)
    assert [one.indices for one in found] == [(0, 1, 2, 3), (4, 5, 6, 7)] * 2
    assert [(one.epoch, one.step) for one in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    (told,) = differences(found[1:], found, in_order=False)
    assert told == "4 samples were lost, as (epoch, index): [(0, 0), (0, 1), (0, 2), (0, 3)]"


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.ones(3), "b": ["x"]},
        {"a": np.zeros(3, np.float32), "b": ["x"]},
        {"a": np.zeros((3, 1)), "b": ["x"]},
        {"a": np.zeros(3), "b": ["y"]},
        {"a": np.zeros(3), "b": [b"x"]},
        {"a": np.zeros(3), "c": ["x"]},
        {"a": np.zeros(3), "b": ["x", None]},
    ],
)
def test_what_differs_in_value_type_shape_or_key_has_another_checksum(other: dict):
    one = {"a": np.zeros(3), "b": ["x"]}
    assert delivered(0, 0, one).crc != delivered(0, 0, other).crc
    assert delivered(0, 0, one).crc == delivered(0, 0, {"b": ["x"], "a": np.zeros(3)}).crc


def test_a_record_can_be_changed_for_a_test():
    assert replace(delivered(0, 1, {"index": np.array([4, 5])}), step=2).indices == (4, 5)
