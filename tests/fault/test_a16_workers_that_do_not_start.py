"""Rows A3, A16 and A17 of the faults: all workers killed at once; workers that die while they start or start late."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swift_loader import SwiftLoader, SwiftLoaderError, WorkerDied, WorkerStartFailed
from swift_loader.pool import policy
from swift_loader.pool.policy import DELAYS_S, MAX_BIRTHS
from tests.datasets import CannotBeBuilt, DiesWhenBuilt, Numbers, calls
from tests.deadly_datasets import SlowToBuild, Unloadable, leaves_early, raises_early
from tests.fault.oracle import ALL_WORLDS, World, differences, faultless, record, traced
from tests.fault.unhurried import BuiltLate
from tests.fault.worlds import in_some_worlds
from tests.loaders import made, started
from tests.slow import slow, start_methods
from tests.watching import flat, run_warm, until, workers


@in_some_worlds
def test_a3_all_workers_killed_at_once_are_replaced(world: World):
    expected = faultless(epochs=2)

    def consume() -> tuple[list, float]:
        with traced(world) as loader:
            killed: list[float] = []

            def strike(step: int) -> None:
                if step == 3 and not killed:
                    for victim in until(lambda: workers() if len(workers()) == world.workers else None):
                        victim.kill()
                    killed.append(time.monotonic())

            found = record(loader, 2, strike)
        later = [one.at_s for one in found if one.at_s > killed[0]]
        # What was made before may still be handed out: within a few steps all is made by those that are new.
        return found, later[8] - killed[0]

    found, took_s = world.run(consume)
    assert not differences(found, expected)
    assert took_s < 10  # to reach: 1 s, and the time of a batch


def dies(settings: dict[str, Any], kind: type[SwiftLoaderError]) -> SwiftLoaderError:
    """What starting says, in time."""
    begun = time.monotonic()
    with pytest.raises(kind) as caught, started(settings.pop("dataset"), settings.pop("kwargs", {}), **settings):
        pass
    assert time.monotonic() - begun < 50  # to reach: 5 s
    return caught.value


METHODS = start_methods


@METHODS
def test_a16_a_dataset_that_cannot_be_built_is_told_with_its_own_traceback(method: str):
    error = dies({"dataset": CannotBeBuilt, "start_method": method}, WorkerStartFailed)
    assert "could not build the dataset: FileNotFoundError: /no/such/folder" in str(error)
    assert isinstance(error.__cause__, FileNotFoundError)
    assert "in __init__" in str(error.__cause__.__cause__)


@METHODS
def test_a16_so_is_an_init_function_that_raises(method: str):
    error = dies({"dataset": Numbers, "worker_init": raises_early, "start_method": method}, WorkerStartFailed)
    assert "no device in this worker" in str(error)
    assert "in raises_early" in str(error.__cause__.__cause__)  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["forkserver", slow("spawn")])
def test_a16_so_is_one_that_raises_where_it_is_sent_to(method: str):
    begun = time.monotonic()
    loader = SwiftLoader.from_dataset(Unloadable(), 8, 1, 2, start_method=method)
    with loader, pytest.raises(WorkerStartFailed, match="no such mount in this process") as caught:
        loader.start(0)
    assert "in __setstate__" in str(caught.value.__cause__.__cause__)  # type: ignore[union-attr]
    assert time.monotonic() - begun < 50  # to reach: 5 s


def test_a16_so_is_a_module_that_cannot_be_imported_in_a_worker(tmp_path: Path):
    (tmp_path / "only_here.py").write_text(
        "import swift_loader, sys\n"
        "if 'swift_loader.loader' not in sys.modules:\n"
        "    raise ImportError('libjpeg.so.8: cannot open shared object file')\n"
        "from tests.datasets import Numbers\n"
        "class Here(Numbers):\n"
        "    pass\n"
    )
    out = run_warm(
        tmp_path,
        "from swift_loader import SwiftLoader, WorkerStartFailed\n"
        "from only_here import Here\n"
        "import time\n"
        "if __name__ == '__main__':\n"
        "    begun = time.monotonic()\n"
        "    with SwiftLoader(Here, {}, 8, 1, 2, start_method='forkserver') as loader:\n"
        "        try:\n"
        "            loader.start(0)\n"
        "        except WorkerStartFailed as error:\n"
        "            print(error, error.__cause__.__cause__, time.monotonic() - begun < 50)\n",
    )
    assert "libjpeg.so.8: cannot open shared object file" in out
    assert "only_here.py" in out
    assert out.strip().endswith("True")


@METHODS
@pytest.mark.parametrize("how", ["os._exit", "sys.exit"])
def test_a16_one_that_dies_while_it_starts_is_started_three_times_and_no_more(method: str, how: str, tmp_path: Path):
    settings: dict[str, Any] = {"dataset": DiesWhenBuilt, "kwargs": {"folder": str(tmp_path)}}
    if how == "sys.exit":
        settings = {"dataset": Numbers, "worker_init": leaves_early}
    begun = time.monotonic()
    error = dies({**settings, "start_method": method}, WorkerDied)
    assert time.monotonic() - begun >= sum(DELAYS_S)  # later each time
    assert f"it was started {MAX_BIRTHS} times and never got further" in str(error)
    assert ("exited with code 9" if how == "os._exit" else "exited with code 7") in str(error)
    if how == "os._exit":
        assert len(calls(tmp_path, "init")) == MAX_BIRTHS


def patiently(consume: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        consume()
    return [str(one.message) for one in told]


def slow_to_start(world: World, folder: Path) -> None:
    """A dataset that takes three times its timeout to build is waited for, and told of."""
    settings = {**world.settings, "shuffle": False, "timeout_s": 0.8}
    told: list[str] = []

    def consume() -> None:
        with made(SlowToBuild, {"folder": str(folder), "seconds": 2.4}, **settings) as loader:
            loader.start(0)
            assert flat(loader) == list(range(32))
            until(lambda: len(calls(folder, "init")) == world.workers)

    told += patiently(lambda: world.run(consume))
    assert len(calls(folder, "init")) == world.workers  # nobody was taken for dead and started again
    assert any("builds the dataset and has made no progress" in text for text in told), told
    assert any("in __init__" in text for text in told), told


def test_a17_a_worker_that_is_slow_to_start_is_waited_for(tmp_path: Path):
    slow_to_start(World("forkserver", 4, in_thread=True), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("world", ALL_WORLDS, ids=str)
def test_a17_in_every_world(world: World, tmp_path: Path):
    slow_to_start(world, tmp_path)


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.soak)])
def test_a17_so_is_one_whose_module_takes_long_to_import(method: str, tmp_path: Path):
    (tmp_path / "heavy.py").write_text(
        "import sys, time\n"
        "if 'swift_loader.loader' not in sys.modules:\n"
        "    time.sleep(2.4)\n"
        "from tests.datasets import Numbers\n"
        "class Heavy(Numbers):\n"
        "    pass\n"
    )
    out = run_warm(
        tmp_path,
        "import sys, warnings\n"
        "from swift_loader import SwiftLoader\n"
        "from heavy import Heavy\n"
        "if __name__ == '__main__':\n"
        "    warnings.simplefilter('ignore')\n"
        "    with SwiftLoader(Heavy, {'count': 32}, 8, 1, 1, shuffle=False, start_method=sys.argv[1],\n"
        "                     timeout_s=0.8) as loader:\n"
        "        loader.start(0)\n"
        "        print([i for batch in loader for i in batch.tolist()] == list(range(32)))\n",
        method,
    )
    assert out == "True\n"


def test_a16_births_that_others_end_end_nothing_while_another_worker_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(policy, "MAX_KILLED_BIRTHS", 2)
    monkeypatch.setattr(policy, "DELAYS_S", (0.01, 0.05))
    (tmp_path / "open").touch()
    with started(BuiltLate, {"folder": str(tmp_path), "count": 64}, shuffle=False) as loader:
        iterator = iter(loader)
        found = next(iterator).tolist()
        until(lambda: len(calls(tmp_path, "init")) == 2)
        (tmp_path / "open").unlink()
        for births in range(2, 7):  # the first to be built made the first batch
            born = until(lambda count=births: calls(tmp_path, "init")[count - 1 :])[0]
            os.kill(born.pid, signal.SIGKILL)
        found += flat(iterator)  # another one tries to be born meanwhile
        (tmp_path / "open").touch()
        until(lambda: len(loader.worker_pids) == 2, "the one that nobody has ended")
    assert found == list(range(64))
