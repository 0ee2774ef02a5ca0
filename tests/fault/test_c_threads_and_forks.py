"""Rows C9 and C15 of the faults, and their neighbours: threads, asyncio, forks, and odd inheritances of a trainer."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from swift_loader import ConfigError
from tests.datasets import Numbers
from tests.fault.oracle import Traced, World, delivered, differences, faultless, record, traced
from tests.loaders import made
from tests.slow import slow
from tests.watching import descendants, run_warm

HERE = World("forkserver", 2, in_thread=False)


def test_c9_several_threads_may_each_have_a_loader_at_the_same_time():
    def run(method: str) -> list:
        with traced(World(method, 1, in_thread=True)) as loader:
            return record(loader)

    with ThreadPoolExecutor(3) as threads:
        runs = list(threads.map(run, ["forkserver", "spawn", "forkserver"]))
    assert [differences(found, faultless()) for found in runs] == [[], [], []]


def test_c9_one_loader_may_be_handed_from_thread_to_thread():
    found: list = []
    with traced(HERE) as loader:
        iterator = iter(loader)
        for step in range(20):
            thread = threading.Thread(target=lambda at=step: found.append(delivered(0, at, next(iterator))))
            thread.start()
            thread.join(20)
    assert not differences(found, faultless())


@pytest.mark.parametrize("workers", [0, 2])
def test_c9_several_threads_may_take_from_one_iterator_and_share_one_epoch(workers: int):
    found: list = []
    with made(Traced, **{**HERE.settings, "worker_per_consumer": workers}) as loader:
        loader.start(0)
        for epoch in range(5):
            batches = iter(loader)

            def take(at: int = epoch, batches=batches) -> None:
                found.extend(delivered(at, 0, batch) for batch in batches)

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert loader.state_dict()["epoch"] == epoch + 1
    assert not differences(found, faultless(5), in_order=False)


@pytest.mark.parametrize("in_loop", [True, False])
def test_c9_a_coroutine_may_iterate_in_its_loop_or_through_a_thread(in_loop: bool):
    async def run() -> list:
        loader = made(Traced, **HERE.settings)
        with loader:
            if in_loop:
                loader.start(0)
                return record(loader)
            await asyncio.to_thread(loader.start, 0)
            iterator = iter(loader)
            return [delivered(0, step, await asyncio.to_thread(next, iterator)) for step in range(20)]

    assert not differences(asyncio.run(run()), faultless())


@pytest.mark.parametrize("why", ["threads", "CUDA"])
def test_c15_fork_is_refused_before_anything_was_forked(why: str, monkeypatch: pytest.MonkeyPatch):
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="somebody-else")
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it was forked"))
    if why == "CUDA":
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    else:
        thread.start()
    try:
        with pytest.raises(
            ConfigError, match=rf"(?s)start_method='fork' .*{why}.*leave start_method out.*allow_fork=True"
        ):
            made(Numbers, start_method="fork").start(0)
    finally:
        go_on.set()
        if why == "threads":
            thread.join()
    assert not descendants()


def test_c15_fork_is_done_with_threads_running_where_the_user_allows_it():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    try:
        with traced(World("fork", 2, in_thread=False), allow_fork=True) as loader:
            assert not differences(record(loader), faultless())
    finally:
        go_on.set()
        thread.join()


FORKS = """
import os, sys
from swift_loader import LoaderClosed
from tests.datasets import Numbers
from tests.loaders import started

def use(loader, iterator):
    for what in (lambda: next(iterator), lambda: next(iter(loader)), loader.statistics, lambda: loader.start(0)):
        try:
            what()
        except LoaderClosed as error:
            print("a child forked from it" in str(error), flush=True)
    loader.close()

with started(Numbers, {"count": 400}, shuffle=False, data_queue_size=1, message_queue_size=1) as loader:
    iterator = iter(loader)
    found = next(iterator).tolist()
    if os.fork() == 0:
        use(loader, iterator)
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    for batch in iterator:
        found += batch.tolist()
    print(found == list(range(400)))
"""


def test_c21_a_forked_child_that_uses_the_loader_is_told_so_and_the_parent_goes_on(tmp_path):
    assert run_warm(tmp_path, FORKS).split() == ["True"] * 4 + ["0", "True"]


INHERITS = """
import os, signal, sys
from functools import partial
import torch
from tests.fault.oracle import Traced, World, delivered, differences, faultless
from tests.loaders import started
from tests.watching import until, workers

class Complains(Traced):
    def __getitem__(self, index):
        if not self.augment:
            os.write(2, b"as a library does")
        return super().__getitem__(index)

def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

def close_all():
    for number in (0, 1, 2):
        os.close(number)

INHERITANCES = {
    "SIGCHLD ignored": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    "children reaped by a handler": lambda: signal.signal(signal.SIGCHLD, reap),
    "signals blocked": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()),
    "no standard streams": close_all,
}

def run(method, is_quiet):
    settings = World(method, 2, in_thread=False).settings
    with started(Complains, {"count": 160, "augment": is_quiet}, **settings) as loader:
        iterator = iter(loader)
        found = [delivered(0, 0, next(iterator))]
        until(workers)[0].kill()
        found += [delivered(0, 1 + step, batch) for step, batch in enumerate(iterator)]
    return differences(found, faultless(dataset=partial(Traced, augment=is_quiet)))

ways, METHODS = int(sys.argv[1]), 2 * ("fork", "forkserver", "spawn")
for turn, (name, inherit) in enumerate(INHERITANCES.items()):
    if os.fork() == 0:
        told = os.fdopen(os.dup2(1, 100, inheritable=False), "w")
        inherit()
        is_quiet = name != "no standard streams"
        print(name, [run(method, is_quiet) for method in METHODS[turn % 3 :][:ways]], file=told, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("ways", [1, slow(3)])
def test_c23_an_odd_trainer_has_ordinary_workers_and_sees_them_die(ways: int, tmp_path):
    """With one of the start methods each, in turn; and where there is time, with all three."""
    names = ["SIGCHLD ignored", "children reaped by a handler", "signals blocked", "no standard streams"]
    assert run_warm(tmp_path, INHERITS, str(ways)).splitlines() == [f"{name} {[[]] * ways}" for name in names]
