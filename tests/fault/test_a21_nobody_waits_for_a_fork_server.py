"""Row A21 of the faults: a fork server that is stopped, or that builds a shared dataset again, holds nobody up."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.datasets import Slow, calls
from tests.fault.odd_servers import GatedAndSlow
from tests.loaders import started
from tests.watching import flat, is_gone, until, workers

#: One thread serves both workers: if it waited for the server, it would serve neither.
SETTINGS = {"multithread": False, "shuffle": False, "data_queue_size": 1, "message_queue_size": 1, "max_buffer_size": 1}
COUNT = 160


def both_and_their_server(loader: Any, iterator: Any) -> tuple[list[int], list[psutil.Process], psutil.Process]:
    """Once both have made a batch: one that was just forked is not handed over yet, and goes with its server.

    Batches are taken meanwhile: where the second worker comes late, the first has made all that may wait.
    """
    found = next(iterator).tolist()
    until(lambda: len(loader.worker_pids) == 2, "two workers")
    while loader.statistics()["workers_warm"] < 2:
        found += next(iterator).tolist()
    family = workers()
    server = family[0].parent()
    assert server is not None
    return found, family, server


def rest_without(worker: psutil.Process, iterator: Any) -> list[int]:
    """What is delivered after its death."""
    worker.kill()
    until(lambda: is_gone(worker))
    return flat(iterator)


def test_a21_a_stopped_server_is_waited_for_by_nobody_who_has_something_else_to_do():
    """If it does not come back for a while, its twin takes its place."""
    settings = {**SETTINGS, "start_method": "fork", "allow_fork": True}
    with started(Slow, {"count": COUNT, "seconds": 0.005}, **settings) as loader:
        iterator = iter(loader)
        found, family, server = both_and_their_server(loader, iterator)
        server.send_signal(signal.SIGSTOP)
        found += rest_without(family[0], iterator)
        with contextlib.suppress(psutil.NoSuchProcess):  # where the rest took its time, the twin has taken over
            server.send_signal(signal.SIGCONT)
        until(lambda: len(loader.worker_pids) == 2, "the replacement")
    assert found == list(range(COUNT))


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a21_while_a_shared_dataset_is_built_again_those_who_live_go_on(is_stopped: bool, tmp_path: Path):
    """The server was killed; or it was stopped, and another takes its place."""
    settings = {**SETTINGS, "share_dataset": True, "start_method": "forkserver"}
    with started(GatedAndSlow, {"folder": str(tmp_path), "count": COUNT}, **settings) as loader:
        iterator = iter(loader)
        found, family, server = both_and_their_server(loader, iterator)
        (tmp_path / "wait").touch()
        server.send_signal(signal.SIGSTOP if is_stopped else signal.SIGKILL)
        found += rest_without(family[0], iterator)
        until(lambda: len(calls(tmp_path, "init")) == 2, "the dataset's being built again")
        assert loader.worker_pids == [family[1].pid]
        (tmp_path / "wait").unlink()
        until(lambda: len(loader.worker_pids) == 2, "the replacement")
    assert found == list(range(COUNT))
