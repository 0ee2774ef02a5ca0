"""Rows A9, A11 and A12 of the faults, when the loader is closed; and a hang's limit, which is kept on both sides."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swift_loader import SwiftLoader
from tests.datasets import Hangs, Numbers, calls
from tests.deadly_datasets import Looping
from tests.fault.unhurried import BuiltLate
from tests.loaders import started
from tests.slow import slow
from tests.watching import descendants, flat, soon_at_least_once, until, workers

#: Promised: 3 s. A test on a busy machine fails at ten times that.
BOUND_S = 30.0


def stopped(loader: SwiftLoader, folder: Path) -> None:
    for worker in until(lambda: workers() if len(workers()) == 2 else None):
        os.kill(worker.pid, signal.SIGSTOP)


def hanging(loader: SwiftLoader, folder: Path) -> None:
    next(iter(loader))
    until(lambda: calls(folder, "hangs"))


def building(loader: SwiftLoader, folder: Path) -> None:
    """One of two serves, and the replacement of the other is not ready."""
    until(lambda: len(calls(folder, "init")) == 2)
    (folder / "open").unlink()
    until(lambda: workers() if len(workers()) == 2 else None)[0].kill()
    until(lambda: len(calls(folder, "init")) == 3)


def building_and_stopped(loader: SwiftLoader, folder: Path) -> None:
    building(loader, folder)
    os.kill(calls(folder, "init")[-1].pid, signal.SIGSTOP)


@pytest.mark.parametrize(
    ("state", "dataset", "method"),
    [
        (stopped, Numbers, "forkserver"),
        slow(stopped, Numbers, "spawn"),
        (hanging, Hangs, "fork"),
        slow(hanging, Looping, "forkserver"),
        (building, BuiltLate, "forkserver"),
        (building_and_stopped, BuiltLate, "spawn"),
    ],
)
def test_a9_a11_a12_closing_takes_no_longer_whatever_workers_are_at(
    state: Callable[[SwiftLoader, Path], None], dataset: type, method: str, tmp_path: Path
):
    (tmp_path / "open").touch()
    kwargs = {} if dataset is Numbers else {"folder": str(tmp_path)}
    with started(dataset, kwargs, start_method=method, shuffle=False) as loader:
        state(loader, tmp_path)
        begun = time.monotonic()
        loader.close()
        assert time.monotonic() - begun < BOUND_S
        assert not descendants()


@pytest.mark.filterwarnings("ignore:swift-worker:RuntimeWarning")  # told by a test of its own
@pytest.mark.parametrize("late_by_s", [20.0, slow(0.5)])
def test_a11_a_hang_is_ended_at_its_limit_and_never_before(late_by_s: float, tmp_path: Path):
    """Not before: always. No more than half a second later: on a machine that has nothing else to do."""
    limit_s = 1.3
    tries = iter(range(3))

    def late_s() -> float:
        (folder := tmp_path / str(next(tries))).mkdir()
        kwargs = {"folder": str(folder), "times": 1}
        settings = {"worker_per_consumer": 1, "timeout_s": limit_s, "shuffle": False}
        with started(Hangs, kwargs, **settings) as loader:
            assert len(flat(loader)) == 32
            ended_ns = time.monotonic_ns()
        (hangs,) = calls(folder, "hangs")
        late_s = (ended_ns - hangs.at_ns) / 1e9 - limit_s
        assert late_s >= 0
        return late_s

    soon_at_least_once(late_s, late_by_s + 0.3)  # the second is for what another worker takes to make the rest
