"""Rows B3, B4 and B5 of the faults: samples that cannot be sent, that crash on their way, or that are too large."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from swift_loader import DataError, LayoutError, NoRoom, PoisonedTicket
from tests.fault.oracle import World, differences, faultless, record
from tests.fault.unsendable import CASES, SENT, WIDTH, HasOne, Holds, InArrays, OneIsLarge, OpensOne, as_they_are
from tests.fault.worlds import in_some_worlds
from tests.loaders import started
from tests.watching import begin_warm, until, workers

# B3 -----------------------------------------------------------------------------------------------------------------


@in_some_worlds
def test_b3_a_sample_that_cannot_be_batched_is_named_with_key_path_and_type(world: World):
    def row() -> None:
        with started(Holds, {"count": len(CASES)}, **_one_by_one(world)) as loader:
            iterator = iter(loader)
            for index, (name, way) in enumerate(CASES):
                place = f"sample {index}, {way}, is a {name}" if way else f"sample {index} is a {name}"
                with pytest.raises(LayoutError, match=re.escape(f"{place}, which the default collate cannot batch")):
                    next(iterator)

    world.run(row)


def _one_by_one(world: World) -> dict[str, Any]:
    return {**world.settings, "batch_size": 1, "shuffle": False, "validate": False}


def test_b3_among_good_samples_it_is_named_too():
    with started(OpensOne, shuffle=False) as loader:
        iterator = iter(loader)
        next(iterator)
        told = r"sample 13, \['meta'\]\['open'\], has a TextIOWrapper; the batch's first sample, 8, has .*int64"
        with pytest.raises(LayoutError, match=told):
            next(iterator)
        assert next(iterator)["i"].tolist() == list(range(16, 24))


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("way_in", ["collate_fn", "array"])
def test_b3_a_batch_that_cannot_be_sent_is_told_with_the_path_inside_it(way_in: str, count: int):
    given = {"batch_size": 1, "shuffle": False, "validate": False, "worker_per_consumer": count}
    collates = way_in == "collate_fn"
    given["collate_fn"] = as_they_are if collates else None
    with started(Holds if collates else InArrays, {"count": len(CASES)}, **given) as loader:
        iterator = iter(loader)
        for index, (name, way) in enumerate(CASES):
            if name in SENT:
                next(iterator)
                continue
            place = f"batch[0]{way} is a {name}" if collates else f"sample {index}, ['meta'][0, 1], is a {name}"
            with pytest.raises(DataError, match=re.escape(f"{place}, which cannot be sent from a worker")):
                next(iterator)


# B4 -----------------------------------------------------------------------------------------------------------------


def _steps(when: str, how: str, folder: Path, times: int = 1 << 30) -> list[Any]:
    """What each step of four samples gave: how many samples, or the error."""
    kwargs = {"when": when, "how": how, "folder": str(folder), "times": times}
    given = {"batch_size": 4, "shuffle": False, "collate_fn": as_they_are, "max_attempts": 2, "validate": False}
    found: list[Any] = []
    with started(HasOne, kwargs, worker_per_consumer=1, **given) as loader:
        iterator = iter(loader)
        for _ in range(3):
            try:
                found.append(len(next(iterator)))
            except Exception as error:
                found.append(error)
    return found


def test_b4_what_raises_when_it_is_pickled_is_named(tmp_path):
    first, error, last = _steps("pickled", "raise", tmp_path)
    assert (first, last) == (4, 4)
    assert isinstance(error, DataError)
    assert re.search(r"batch\[1\] is a Crashes, which cannot be sent.*crashes when it is pickled.*step 1\)", str(error))


def test_b4_what_raises_when_it_is_loaded_is_told_and_the_loader_goes_on(tmp_path):
    first, error, last = _steps("loaded", "raise", tmp_path)
    assert (first, last) == (4, 4)
    assert isinstance(error, DataError)
    assert re.search(
        r"unpickling it raised RuntimeError: crashes when it is loaded.*worker 0, epoch 0, step 1", str(error)
    )
    assert isinstance(error.__cause__, RuntimeError)


@pytest.mark.parametrize(("when", "how"), [("pickled", "exit"), ("pickled", "segfault"), ("collected", "exit")])
def test_b4_what_ends_its_worker_is_poison_or_made_again(when: str, how: str, tmp_path):
    (tmp_path / "once").mkdir()
    assert _steps(when, how, tmp_path / "once", times=1) == [4, 4, 4]
    if how == "exit":
        first, error, last = _steps(when, how, tmp_path)
        assert (first, last) == (4, 4)
        assert isinstance(error, PoisonedTicket)
        assert "exited with code 41" in str(error)


def test_b4_what_raises_when_it_is_collected_loses_nothing(tmp_path):
    assert _steps("collected", "raise", tmp_path) == [4, 4, 4]


EXITS = """
import sys
from tests.fault.unsendable import HasOne, as_they_are
from tests.watching import workers
from swift_loader import SwiftLoader

if __name__ == "__main__":
    kwargs = {"when": "loaded", "how": "exit", "folder": sys.argv[1]}
    with SwiftLoader(HasOne, kwargs, 4, 1, 2, False, collate_fn=as_they_are, validate=False) as loader:
        for batch in loader:
            print(len(batch), *(worker.pid for worker in workers()), flush=True)
"""


def test_b4_what_ends_the_trainer_when_it_is_loaded_there_ends_it_as_it_says_and_no_worker_stays(tmp_path):
    # Loading runs the user's code in the user's own process: it may end that, but not leave workers behind.
    with begin_warm(tmp_path, EXITS, str(tmp_path)) as process:
        try:
            out, _ = process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 41
    count, *pids = map(int, out.split())
    assert count == 4
    assert pids
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the workers' end", 5)


# B5 -----------------------------------------------------------------------------------------------------------------


@in_some_worlds
def test_b5_a_sample_of_three_slots_arrives_whole(world: World):
    given = {**world.settings, "batch_size": 1}
    expected = faultless(2, 48, OneIsLarge, batch_size=1)

    def row() -> list[Any]:
        with started(OneIsLarge, {"count": 48}, **given) as loader:
            return record(loader, 2)

    assert not differences(world.run(row), expected)


@pytest.mark.parametrize("count", [0, 1])
def test_b5_above_the_limit_both_sizes_are_told_and_the_others_come(count: int):
    given = {"batch_size": 1, "shuffle": False, "max_batch_nbytes": 8 * WIDTH, "worker_per_consumer": count}
    with started(OneIsLarge, {"count": 16}, **given) as loader:
        iterator = iter(loader)
        assert [next(iterator)["index"].item() for _ in range(13)] == list(range(13))
        begun = monotonic()
        # The limit is on batches, which covers samples: a batch is never smaller than its largest one.
        with pytest.raises(NoRoom, match=r"131,\d+ bytes is more than max_batch_nbytes allows, 32,768.*step 13\)"):
            next(iterator)
        assert monotonic() - begun < 20
        assert [next(iterator)["index"].item() for _ in range(2)] == [14, 15]
        assert count == 0 or workers()
