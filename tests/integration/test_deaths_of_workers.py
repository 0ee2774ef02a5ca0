"""A worker that dies changes nothing, or ends in an error that names the sample; it never hangs."""

from __future__ import annotations

import os
import signal
from itertools import chain

import psutil
import pytest

from swift_loader import PoisonedTicket, WorkerError
from tests.datasets import Deadly, Records, calls
from tests.loaders import started, stream
from tests.slow import slow
from tests.watching import flat, is_gone, plain, until, workers

METHODS = pytest.mark.parametrize("method", ["forkserver", slow("spawn"), slow("fork")])


@METHODS
def test_the_stream_is_the_same_when_workers_are_killed_from_outside(method: str):
    expected = stream(Records, {"count": 160}, epochs=3, worker_per_consumer=0)
    found = []
    with started(Records, {"count": 160}, start_method=method, data_queue_size=2, message_queue_size=1) as loader:
        for step, batch in enumerate(chain(loader, loader, loader)):
            found.append(plain(batch))
            if step % 7 == 3:
                os.kill(until(workers)[0].pid, signal.SIGKILL)
    assert found == expected


@pytest.mark.parametrize("how", ["kill", slow("segfault"), "exit 0", slow("exit 7"), slow("sys.exit")])
def test_the_stream_is_the_same_when_a_sample_kills_its_worker_once(how: str, tmp_path):
    kwargs = {"folder": str(tmp_path), "how": how, "times": 1}
    with started(Deadly, kwargs, shuffle=False) as loader:
        assert flat(loader) == list(range(32))
    assert len(calls(tmp_path, "dies")) in (1, 2)  # the other may have taken the batch over just before


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("kill", "killed by SIGKILL"),
        ("segfault", "killed by SIGSEGV"),
        slow("exit 0", "exited with code 0"),
        slow("exit 7", "exited with code 7"),
        ("sys.exit", "exited with code 3"),
    ],
)
def test_a_sample_that_always_kills_its_worker_is_named(how: str, told: str, tmp_path):
    kwargs = {"folder": str(tmp_path), "how": how}
    with started(Deadly, kwargs, shuffle=False) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == list(range(8))
        # A SIGKILL may come from anybody, so it is held against the batch alone.
        deaths = 12 if how == "kill" else 3
        with pytest.raises(PoisonedTicket, match=f"killed {deaths} workers.*{told}.* sample 13"):
            next(iterator)
        assert next(iterator).tolist() == list(range(16, 24))  # the others are not harmed


def test_a_first_sample_that_kills_its_worker_ends_the_start(tmp_path):
    with (
        pytest.raises(PoisonedTicket, match="sample 13"),
        started(Deadly, {"folder": str(tmp_path), "how": "segfault", "count": 3200}, shuffle=False, batch_size=32),
    ):
        pass
    assert len(calls(tmp_path, "dies")) >= 3


def test_all_workers_killed_at_once_are_replaced():
    expected = stream(Records, {"count": 160}, worker_per_consumer=0)
    with started(Records, {"count": 160}, worker_per_consumer=4, data_queue_size=1, message_queue_size=1) as loader:
        iterator = iter(loader)
        found = [plain(next(iterator))]
        for worker in until(lambda: workers() if len(workers()) == 4 else None):
            worker.kill()
        found += [plain(batch) for batch in iterator]
    assert found == expected


def kill_the_server_and_its_workers() -> None:
    orphans = until(lambda: workers() if len(workers()) == 2 else None)
    server = orphans[0].parent()
    assert server is not None
    server.kill()
    until(lambda: is_gone(server))
    for worker in orphans:
        worker.kill()


def test_a_killed_fork_server_is_started_again():
    expected = stream(Records, {"count": 160}, worker_per_consumer=0)
    with started(Records, {"count": 160}, data_queue_size=1, message_queue_size=1) as loader:
        iterator = iter(loader)
        found = [plain(next(iterator))]
        kill_the_server_and_its_workers()
        found += [plain(batch) for batch in iterator]
    assert found == expected


def test_the_stream_is_the_same_when_the_copy_of_the_trainer_is_killed_with_its_workers():
    settings = {"start_method": "fork", "data_queue_size": 1, "message_queue_size": 1}
    expected = stream(Records, {"count": 160}, worker_per_consumer=0)
    with started(Records, {"count": 160}, **settings) as loader:
        iterator = iter(loader)
        found = [plain(next(iterator))]
        kill_the_server_and_its_workers()
        found += [plain(batch) for batch in iterator]
    assert found == expected


def test_copies_of_the_trainer_that_are_all_killed_with_their_workers_are_an_error_and_no_hang():
    with started(Records, {"count": 1600}, start_method="fork", data_queue_size=1, message_queue_size=1) as loader:
        iterator = iter(loader)
        next(iterator)
        until(lambda: len(workers()) == 2)
        family = psutil.Process(workers()[0].ppid())
        for process in [*family.children(recursive=True), family]:
            process.kill()
        with pytest.raises(WorkerError):
            list(iterator)
