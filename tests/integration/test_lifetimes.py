"""Nothing outlives its loader: not after close, not if the loader is forgotten. (How trainers end: tests/fault.)"""

from __future__ import annotations

import gc
import os
import subprocess
import threading
import time

import pytest

from tests.datasets import Numbers, Pictures, Slow
from tests.loaders import made, started
from tests.slow import start_methods
from tests.watching import descendants, flat, run_warm, soon_at_least_once, until, workers


@start_methods
def test_close_ends_all_processes_and_threads(method: str):
    loader = made(Numbers, start_method=method, worker_per_consumer=3)
    loader.start(0)
    next(iter(loader))
    until(lambda: len(workers()) == 3)
    loader.close()
    assert descendants() == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("swift-")]


def test_close_does_not_wait_for_a_slow_sample():
    loader = made(Slow, {"seconds": 30.0}, validate=False, batch_size=1)
    loader.start(0)
    begun = time.monotonic()
    loader.close()
    assert time.monotonic() - begun < 15  # half of the sample's time; to reach: 1 s
    assert descendants() == []


def test_close_while_another_thread_waits_for_a_batch_wakes_it():
    heard: list[BaseException] = []
    loader = made(Slow, {"seconds": 30.0}, validate=False, batch_size=1)
    loader.start(0)

    def wait() -> None:
        try:
            next(iter(loader))
        except BaseException as error:
            heard.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: len(workers()) == 2)
    loader.close()
    thread.join(5)
    assert not thread.is_alive()
    assert type(heard[0]).__name__ == "LoaderClosed"


def test_a_forgotten_loader_warns_and_leaves_nothing():
    loader = made(Numbers)
    loader.start(0)
    next(iter(loader))
    with pytest.warns(ResourceWarning, match="was not closed"):
        del loader
    until(lambda: not descendants(), "the end of the workers")


def test_a_child_that_the_trainer_forks_keeps_no_worker_alive(tmp_path):
    out = run_warm(
        tmp_path,
        """
import os, signal, sys
from tests.datasets import Slow
from tests.loaders import started
from tests.watching import until, workers

if __name__ == "__main__":
    trainer = os.fork()
    if trainer == 0:
        with started(Slow, {"seconds": 0.05, "count": 1000}, batch_size=2) as loader:
            next(iter(loader))
            if os.fork() == 0:  # lives on when the trainer is killed, with a copy of all its descriptors
                signal.pause()
            signal.pause()
    pids = until(lambda: [one.pid for one in workers(trainer)] if len(workers(trainer)) == 2 else None)
    import psutil, time
    (bystander,) = until(lambda: [one for one in psutil.Process(trainer).children() if one.name().startswith("python")])
    os.kill(trainer, signal.SIGKILL)
    os.waitpid(trainer, 0)
    until(lambda: not any(map(psutil.pid_exists, pids)), deadline_s=20)
    print("gone while a copy lives:", bystander.is_running())
    bystander.kill()
""",
        PYTHONWARNINGS="ignore",
    )
    assert out == "gone while a copy lives: True\n"


@pytest.mark.parametrize("multithread", [True, False])
def test_an_idle_loader_uses_no_processor(multithread: bool):
    def used_s() -> float:
        """By the loader's threads and processes: not by this thread, which asks."""
        spent = sum(sum(one.cpu_times()[:2]) for one in family)
        return time.process_time() - time.thread_time() + spent

    with started(Pictures, {"count": 640}, multithread=multithread) as loader:
        batch = next(iter(loader))
        until(lambda: len(workers()) == 2)
        family = descendants()

        def used_in_a_second() -> float:
            before = until(lambda: _came_to_rest(used_s), "rest")
            time.sleep(1.0)  # the time that is measured
            return used_s() - before

        soon_at_least_once(used_in_a_second, bound_s=0.02)
        assert batch is not None


def _came_to_rest(used_s) -> float | None:
    before = used_s()
    time.sleep(0.1)
    after = used_s()
    return after if after - before < 0.002 else None


def test_a_loader_can_be_used_and_closed_in_threads_other_than_the_one_that_started_it():
    loader = made(Numbers, {"count": 40})
    loader.start(0)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(flat(loader)))
    thread.start()
    thread.join()
    closing = threading.Thread(target=loader.close)
    closing.start()
    closing.join()
    assert sorted(found) == list(range(40))


def test_a_forked_child_of_the_trainer_does_not_disturb_the_loader():
    with started(Pictures, {"count": 64}) as loader:
        iterator = iter(loader)
        kept = next(iterator)
        child = subprocess.Popen(["sleep", "30"])
        pid = os.fork()
        if pid == 0:
            del kept  # leases that end here are the parent's business
            gc.collect()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        labels = [int(label) for _, batch in iterator for label in batch]
        assert len(labels) == 56
        assert (kept[0] == kept[1][:, None] % 251).all()
        child.kill()
        child.wait()
