"""Row C6 of the faults, as clusters do it: not the group but each process of the job is sent the signal.

Slurm, LSF and others find all processes of a job in its control group and tell each that the job ends, or is to go on.
What that means the trainer decides; workers take no notice, whatever they are at, and so does the fork server.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.datasets import Slow, calls
from tests.fault.unhurried import BuiltLate
from tests.loaders import started
from tests.slow import slow, start_methods
from tests.watching import DEADLINE_S, descendants, flat, is_gone, until, workers

SENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGCONT)
METHODS = ("forkserver", "spawn", "fork")


def send_to_all() -> list[psutil.Process]:
    """Sends each signal to each process below this one, which are given back."""
    family = descendants()
    for number in SENT:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    return family


@contextmanager
def beside(action: Callable[[], None]) -> Iterator[None]:
    """``action`` runs in a thread; it is to end by itself."""
    thread = threading.Thread(target=action)
    thread.start()
    try:
        yield
    finally:
        thread.join(DEADLINE_S)
    assert not thread.is_alive()


@start_methods
def test_c6_signals_to_every_process_end_none_that_serves(method: str):
    with started(Slow, {"count": 64, "seconds": 0.002}, start_method=method, shuffle=False) as loader:
        iterator = iter(loader)
        found = next(iterator).tolist()
        until(lambda: len(workers()) == 2)
        family = send_to_all()
        found += flat(iterator)
        assert not [process for process in family if is_gone(process)]
    assert found == list(range(64))


@start_methods
def test_c6_signals_to_every_process_end_none_that_builds_its_dataset(method: str, tmp_path: Path):
    family: list[psutil.Process] = []

    def interfere() -> None:
        until(lambda: calls(tmp_path, "init"))
        family.extend(send_to_all())
        (tmp_path / "open").touch()

    with (
        beside(interfere),
        started(BuiltLate, {"folder": str(tmp_path)}, start_method=method, allow_fork=True) as loader,
    ):
        assert sorted(flat(loader)) == list(range(32))
        assert family
        assert not [process for process in family if is_gone(process)]


@pytest.mark.parametrize("method", [slow("forkserver"), "spawn", slow("fork")])
def test_c6_signals_to_every_process_end_none_that_only_starts(method: str):
    """From its first moment on: an interpreter that is still loading Python would else be ended."""
    family: set[psutil.Process] = set()
    is_over = threading.Event()

    def interfere() -> None:
        while not is_over.wait(0.001):
            family.update(send_to_all())

    with beside(interfere):
        try:
            with started(Slow, {"seconds": 0.002}, start_method=method, allow_fork=True) as loader:
                until(lambda: len(workers()) == 2)
                found = flat(loader)
                is_over.set()
                assert sorted(found) == list(range(64))
                assert set(workers()) <= family
                assert not [process for process in family if is_gone(process)]
        finally:
            is_over.set()
