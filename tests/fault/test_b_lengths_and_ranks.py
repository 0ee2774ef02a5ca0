"""Rows B10, B11, B12 and B15 of the faults: lengths that lie, what is no map-style dataset, ranks with unequal steps,
and workers that fight for the cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from swift_loader import ConfigError, DataError, SwiftLoader
from swift_loader.worker.threads import one_thread_each, setters
from tests.datasets import Iterates
from tests.fault.lengths import Grows, LengthOfFolder, SaysLength
from tests.fault.oracle import World
from tests.fault.worlds import in_some_worlds
from tests.gloo_ranks import run_ranks
from tests.loaders import made, started
from tests.slow import start_methods
from tests.watching import flat, run_script, until, workers

# B10 ----------------------------------------------------------------------------------------------------------------


@in_some_worlds
def test_b10_a_length_that_is_too_long_is_told_with_both_numbers(world: World):
    def row() -> None:
        with started(SaysLength, {"length": 17}, shuffle=False, **world.settings) as loader:
            iterator = iter(loader)
            assert next(iterator).tolist() == list(range(8))
            told = r"fetch of sample 12 raised IndexError: .*len\(\) was 17, so sample 12 should be there.*step 1\)"
            with pytest.raises(DataError, match=told):
                next(iterator)

    world.run(row)


@pytest.mark.parametrize("count", [0, 1])
def test_b10_of_a_length_that_is_too_short_the_samples_that_it_says_come(count: int):
    with started(SaysLength, {"length": 9}, worker_per_consumer=count) as loader:
        assert sorted(flat(loader)) == list(range(9))


NO_LENGTHS = {
    -1: r"__len__ of SaysLength raised ValueError: __len__\(\) should return >= 0",
    1 << 63: r"__len__ of SaysLength raised OverflowError: cannot fit 'int'",
    12.0: r"__len__ of SaysLength raised TypeError: 'float' object cannot",
    "12": r"__len__ of SaysLength raised TypeError: 'str' object cannot",
    OSError: r"__len__ of SaysLength raised OSError: no length today",
    sys.maxsize: r"at most 2\*\*62 samples, not 9223372036854775807",
}


@pytest.mark.parametrize("length", NO_LENGTHS, ids=str)
def test_b10_what_is_no_length_is_refused(length: Any):
    for count in (0, 1) if length == -1 else (0,):
        with pytest.raises(ConfigError, match=NO_LENGTHS[length]):
            made(SaysLength, {"length": length}, worker_per_consumer=count).start(0)


@pytest.mark.parametrize(("length", "shuffle"), [(10**12, True), (1 << 62, False)])
def test_b10_a_length_without_end_costs_nothing_until_it_is_found_to_lie(length: int, shuffle: bool):
    with started(SaysLength, {"length": length}, shuffle=shuffle, validate=False, worker_per_consumer=1) as loader:
        assert len(loader) == -(-length // 8)
        with pytest.raises(DataError, match=rf"IndexError.*len\(\) was {length}, so sample \d+ should be there"):
            for _ in loader:
                pass


def test_b10_a_length_that_differs_between_workers_is_told_with_both_numbers():
    told = r"len\(\) is 75 in swift-worker-c0w1 and 65 in the first worker"
    with pytest.raises(ConfigError, match=told), started(Grows) as loader:
        until(lambda: list(loader) is None)


def test_b10_a_length_that_changes_when_a_worker_is_replaced_is_told(tmp_path):
    (tmp_path / "12").touch()
    with started(LengthOfFolder, {"folder": str(tmp_path)}, worker_per_consumer=1) as loader:
        iterator = iter(loader)
        next(iterator)
        (tmp_path / "12").rename(tmp_path / "13")
        workers()[0].kill()
        with pytest.raises(ConfigError, match=r"len\(\) is 13 in swift-worker-c0w0 and 12 in the first worker"):
            until(lambda: not flat(loader))


# B11 ----------------------------------------------------------------------------------------------------------------


class Streams(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(range(10))


class StreamsWithLength(Streams):
    def __len__(self) -> int:
        return 10


REFUSED: dict[str, Callable[[], Any]] = {
    "a class": lambda: SwiftLoader(Iterates, {}, 4, 1, 1),
    "torch's class": lambda: SwiftLoader(Streams, {}, 4, 1, 1),
    "torch's class with a length": lambda: SwiftLoader(StreamsWithLength, {}, 4, 1, 1),
    "an instance": lambda: SwiftLoader.from_dataset(Iterates(), 4, 1, 1),
    "torch's instance": lambda: SwiftLoader.from_dataset(StreamsWithLength(), 4, 1, 1),
    "a generator": lambda: SwiftLoader.from_dataset((i for i in range(3)), 4, 1, 1),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_b11_what_can_only_be_iterated_is_refused_at_once_with_a_way_that_works(make: Callable[[], Any]):
    with pytest.raises(ConfigError, match=r"map-style.*Write an iterable one into shards once, or put it behind"):
        make()


# B12 ----------------------------------------------------------------------------------------------------------------

#: 81 samples in batches of 4: without `even` one rank takes 11 batches and the other 10.
UNEVEN = """
import json, os, sys, time, warnings
from datetime import timedelta
import torch
import torch.distributed as distributed
from swift_loader import RankMismatch, SwiftLoader
from tests.datasets import Numbers

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
distributed.init_process_group("gloo", timeout=timedelta(seconds=70))

def steps_of(even):
    with SwiftLoader(Numbers, {"count": 81}, 4, world, 1, False, seed=1, even=even) as loader:
        began, said = time.monotonic(), []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader.start(rank)
            said = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
        took = time.monotonic() - began
        if even == "none":
            return [len(loader), said, took]
        counts = []
        for step, _ in enumerate(loader):  # a rank that has left would be waited for here
            told = torch.tensor([step])
            distributed.all_reduce(told)
            counts.append(told.item())
        return [len(loader), counts, took]

found = {even: steps_of(even) for even in ("drop", "pad", "balance", "none")}
distributed.barrier()
began = time.monotonic()
try:
    with SwiftLoader(Numbers, {"count": 81 - 4 * rank}, 4, world, 1, False, seed=1) as loader:
        loader.start(rank)  # raises on the rank that comes later; the other one is told at its next batch
        while time.monotonic() - began < 20:
            for _ in loader:
                pass
        found["refused"] = ["", 20]
except RankMismatch as error:
    found["refused"] = [str(error), time.monotonic() - began]
print(json.dumps(found))
distributed.barrier()
distributed.destroy_process_group()
"""


def test_b12_ranks_with_11_and_10_batches_end_at_one_step_or_are_told_before_the_first_collective(tmp_path):
    one, other = run_ranks(tmp_path, UNEVEN, world=2)
    for even in ("drop", "pad", "balance"):
        assert one[even][0] == other[even][0]
        assert one[even][1] == other[even][1] == [2 * step for step in range(one[even][0])]
    assert (one["none"][0], other["none"][0]) == (11, 10)
    for rank in (one, other):
        (warning,) = rank["none"][1]
        assert "from 10 to 11 batches" in warning
        assert rank["none"][2] < 10  # bound: 1 s
        text, seconds = rank["refused"]  # datasets of another length on each rank
        assert "81" in text
        assert "77" in text
        assert seconds < 10  # bound: 1 s


# B15 ----------------------------------------------------------------------------------------------------------------


FOUR_WORKERS = """
import sys
import numpy as np
import torch
from swift_loader import SwiftLoader
from tests.fault.multiplying import Multiplies

if __name__ == "__main__":
    torch.set_num_threads(2)
    # The trainer's own threads run: GNU's OpenMP hangs in a forked child that asks for them.
    (torch.ones(384, 384) @ torch.ones(384, 384)).exp().sum()
    (np.ones((384, 384)) @ np.ones((384, 384))).sum()
    with SwiftLoader(Multiplies, {"count": 16}, 2, 1, 4, False, start_method=sys.argv[1]) as loader:
        for batch in loader:
            print({key: value.tolist() for key, value in batch.items()})
    assert torch.get_num_threads() == 2
"""


@start_methods
def test_b15_a_worker_has_one_thread_for_arithmetic_though_the_trainer_has_more(method: str, tmp_path):
    many = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    out = run_script(tmp_path, FOUR_WORKERS, method, **many)
    assert out.splitlines() == [str({"torch": [1, 1], "more": [0, 0], "omp": [1, 1], "mkl": [1, 1]})] * 8


def test_b15_libraries_that_are_loaded_already_are_found(monkeypatch):
    before = torch.get_num_threads()
    for name in [name for name in os.environ if name.endswith("_THREADS")]:
        monkeypatch.setenv(name, os.environ[name])
    try:
        torch.set_num_threads(2)
        one_thread_each(setters())
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
