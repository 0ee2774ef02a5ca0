"""Rows A7, A9, A11, A12 of the faults: workers that stop, sleep, loop or crash, and what is told of them."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from swift_loader import PoisonedTicket
from tests.datasets import Deadly, Hangs, Numbers, Records, calls
from tests.deadly_datasets import Looping
from tests.loaders import started, stream
from tests.slow import slow, start_methods
from tests.watching import begin_warm, flat, plain, until, workers

METHODS = ["forkserver", "spawn", "fork"]


@start_methods
def test_a9_a_stopped_worker_is_replaced_and_nothing_is_lost(method: str):
    expected = stream(Records, {"count": 160}, worker_per_consumer=0)
    with started(
        Records, {"count": 160}, start_method=method, data_queue_size=1, message_queue_size=1, max_buffer_size=0
    ) as loader:
        iterator = iter(loader)
        found = [plain(next(iterator))]
        stopped = until(lambda: workers() if len(workers()) == 2 else None)[0]
        os.kill(stopped.pid, signal.SIGSTOP)
        begun = time.monotonic()
        found += [plain(batch) for batch in iterator]
        took_s = time.monotonic() - begun
        until(lambda: len(workers()) == 2 and stopped.pid not in [worker.pid for worker in workers()])
    assert found == expected
    assert took_s < 20  # to reach: 2 s


@pytest.mark.parametrize(
    ("dataset", "method"),
    [(Hangs, "forkserver"), slow(Looping, "spawn"), slow(Hangs, "fork"), slow(Looping, "forkserver"),
     slow(Hangs, "spawn"), (Looping, "fork")],
)  # fmt: skip
def test_a11_a12_one_that_hangs_is_told_with_its_stack_then_killed_and_its_sample_made_again(
    dataset: type, method: str, tmp_path
):
    kwargs = {"folder": str(tmp_path), "times": 1}
    # One worker: of two, the other may take the batch over just before the sample is reached, and nobody has to wait.
    settings = {"worker_per_consumer": 1, "timeout_s": 2.0, "start_method": method}
    with (
        pytest.warns(RuntimeWarning, match=r"fetches sample 13 and has made no progress") as told,
        started(dataset, kwargs, shuffle=False, **settings) as loader,
    ):
        assert flat(loader) == list(range(32))
    (warning,) = {str(one.message) for one in told}
    assert "timeout_s=2" in warning
    assert "__getitem__" in warning  # the line at which it stands
    assert len(calls(tmp_path, "hangs")) == 1


@pytest.mark.filterwarnings("ignore:swift-worker:RuntimeWarning")  # told by the test above
def test_a11_one_that_always_hangs_is_poison_and_says_where_it_hung(tmp_path):
    kwargs = {"folder": str(tmp_path)}
    with started(Hangs, kwargs, shuffle=False, timeout_s=1.5, max_attempts=2) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(PoisonedTicket) as caught:
            next(iterator)
        assert next(iterator).tolist() == list(range(16, 24))
    assert "made no progress for" in str(caught.value)
    assert "sample 13" in str(caught.value)
    assert "in __getitem__" in str(caught.value)


def test_a7_a_segfault_leaves_the_stack_of_its_thread(tmp_path):
    with started(Deadly, {"folder": str(tmp_path), "how": "segfault"}, shuffle=False) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(PoisonedTicket) as caught:
            next(iterator)
    assert "SIGSEGV" in str(caught.value)
    assert "Segmentation fault" in str(caught.value)
    assert "in __getitem__" in str(caught.value)


def test_a9_a_worker_that_waits_for_orders_may_be_stopped_for_as_long_as_one_likes():
    """Nothing is asked of it, so nothing is late; what is asked of it later is made by another."""
    with started(Numbers, {"count": 6400}, data_queue_size=2, message_queue_size=1, max_buffer_size=0) as loader:
        iterator = iter(loader)
        first = next(iterator).tolist()
        idle = until(lambda: workers() if len(workers()) == 2 else None)
        threading.Event().wait(0.3)  # by now the queue is full and nobody has an order
        for worker in idle:
            os.kill(worker.pid, signal.SIGSTOP)
        rest = flat(iterator)
    assert sorted(first + rest) == list(range(6400))


def test_a9_stopping_the_whole_job_and_letting_it_go_on_kills_nobody(tmp_path):
    text = (
        "import sys, time\n"
        "from swift_loader import SwiftLoader\n"
        "from tests.datasets import Slow\n"
        "with SwiftLoader(Slow, {'count': 64, 'seconds': 0.02}, 2, 1, 2, seed=1, timeout_s=3.0) as loader:\n"
        "    loader.start(0)\n"
        "    for batch in loader:\n"
        "        print('batch', flush=True)\n"
        "    print(int(loader.statistics()['batches']))\n"
    )
    with begin_warm(tmp_path, text) as process:
        process.readline()
        family = [process.pid, *(worker.pid for worker in until(lambda: workers(process.pid)))]
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(4.0)  # longer than its timeout
        for pid in reversed(family):
            os.kill(pid, signal.SIGCONT)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert err == ""
    assert out.splitlines()[-1] == "32"
