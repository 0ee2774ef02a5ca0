"""The server that workers are forked from where no copy of the trainer can be made: all loaders share it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from swift_loader import LoaderClosed, SwiftLoader
from swift_loader.engines.lifeline import ends
from swift_loader.engines.nursery import Needs, shared
from swift_loader.engines.server import ServerGone
from tests.datasets import Numbers
from tests.inheriting import LoadsLate, sets_its_own
from tests.loaders import made, started
from tests.watching import flat, is_gone, run_warm, until, workers


@pytest.mark.usefixtures("own_server")
def test_loaders_share_a_server_that_outlives_them():
    parents = set()
    for _ in range(2):
        with (
            started(Numbers, start_method="forkserver") as first,
            started(Numbers, start_method="forkserver", share_dataset=True) as second,
        ):
            assert sorted(flat(first)) == sorted(flat(second)) == list(range(64))
            parents |= {psutil.Process(pid).ppid() for pid in first.worker_pids}
            branches = {psutil.Process(psutil.Process(pid).ppid()).ppid() for pid in second.worker_pids}
            assert branches == parents
    assert len(parents) == 1
    assert psutil.pid_exists(*parents)


@pytest.mark.usefixtures("own_server")
def test_a_server_begins_when_the_first_loader_is_constructed():
    settings = {"start_method": "forkserver"}
    with made(Numbers, worker_per_consumer=0, **settings):
        assert not shared.pids
    with made(Numbers, **settings):
        begun = shared.pids
        assert len(begun) == 1
        with made(Numbers, **settings) as loader:
            loader.start(0)
            assert {psutil.Process(pid).ppid() for pid in loader.worker_pids} == begun == shared.pids


@pytest.mark.usefixtures("own_server")
def test_a_killed_server_of_two_loaders_is_started_again_for_both():
    settings = {"start_method": "forkserver", "data_queue_size": 1, "message_queue_size": 1, "shuffle": False}
    with started(Numbers, **settings) as first, started(Numbers, **settings) as second:
        iterators = [iter(first), iter(second)]
        found = [next(one).tolist() for one in iterators]
        server = psutil.Process(psutil.Process(first.worker_pids[0]).ppid())
        server.kill()
        until(lambda: is_gone(server))
        for worker in workers():
            worker.kill()
        for numbers, rest in zip(found, iterators, strict=True):
            assert numbers + flat(rest) == list(range(64))


@pytest.mark.usefixtures("own_server")
def test_a_loader_that_is_closed_while_it_waits_leaves_the_server_to_the_others():
    """What it has asked is answered when nobody waits for it any more: that is nobody else's answer."""
    with started(Numbers, start_method="forkserver") as other:
        server = shared._server
        process = psutil.Process(server.pid)
        server.is_unique = True  # else it would be killed for being stopped
        process.suspend()
        late = made(Numbers, start_method="forkserver")
        closing = threading.Thread(target=lambda: (until(lambda: server._awaited, "the question"), late.close()))
        closing.start()
        with pytest.raises(LoaderClosed):
            late.start(0)
        closing.join(30)
        process.resume()
        with started(Numbers, start_method="forkserver") as third:
            assert sorted(flat(third)) == sorted(flat(other)) == list(range(64))
        assert shared._server is server
    until(lambda: all(map(is_gone, process.children())), "the end of the worker that nobody wanted")


def test_a_child_of_the_trainer_has_a_server_of_its_own():
    made(Numbers, start_method="forkserver")
    mine = shared._server
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert not shared.pids
            with SwiftLoader(Numbers, {}, 8, 1, 1, start_method="forkserver") as loader:
                loader.start(0)
                assert sorted(flat(loader)) == list(range(64))
            shared.end()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert not mine.is_gone


@pytest.mark.usefixtures("own_server")
@pytest.mark.parametrize(("library", "init", "born_with"), [("zipapp", None, 2), ("tabnanny", sets_its_own, 0)])
def test_a_library_is_loaded_once_but_not_where_workers_change_their_environment(
    library: str, init: Callable[..., None] | None, born_with: int
):
    """Nobody else has loaded these; what `worker_init` has set they may look at when they are loaded."""
    settings = {"start_method": "forkserver", "worker_per_consumer": 3, "batch_size": 1, "worker_init": init}
    with started(LoadsLate, {"library": library}, **settings) as loader:
        told = {(pid, bool(was_there), own) for (pid,), (was_there,), (own,) in loader}
    assert len({pid for pid, _, _ in told}) == 3
    assert sum(was_there for _, was_there, _ in told) == born_with
    assert {own for _, _, own in told} == ({""} if init is None else {"0", "1", "2"})


@pytest.mark.usefixtures("own_server")
def test_a_library_that_begins_threads_is_loaded_nowhere_where_workers_are_forked_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "spoils.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    needs, threads = Needs(["spoils"]), []
    for _ in range(3):
        with ends() as made_for_it:
            try:
                _, pidfd, server = shared.fork("swift-worker-c0w0", made_for_it.fds, needs, lambda: False)
                threads.append(len(list(Path(f"/proc/{server.pid}/task").iterdir())))
                os.close(pidfd)
            except ServerGone as gone:
                threads.append(str(gone))
            made_for_it.ours.close()
            made_for_it.lifeline.cut()
    assert threads == ["a library that the fork server has loaded began threads there", 1, 1]


HERITAGE = """
import os, resource, sys, threading
from swift_loader import SwiftLoader
from tests.inheriting import Told

SwiftLoader(Told, {}, 1, 1, 1)  # the server begins
os.environ["ADDED"] = "later"
os.environ.pop("TAKEN", None)
os.umask(0o027)
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.makedirs("elsewhere", exist_ok=True)
os.chdir("elsewhere")
sys.path.append("added-later")
resource.setrlimit(resource.RLIMIT_CPU, (10_000, resource.getrlimit(resource.RLIMIT_CPU)[1]))
for method in ("forkserver", "auto", "spawn"):
    with SwiftLoader(Told, {}, 1, 1, 1, start_method=method) as loader:
        loader.start(0)
        ((told,),) = loader
        print(told)
"""


def test_workers_start_as_if_the_trainer_had_started_them_now(tmp_path: Path):
    told = run_warm(tmp_path, HERITAGE, TAKEN="before").splitlines()
    last = max(os.sched_getaffinity(0))
    assert told == [f"later None 0o27 [{last}] elsewhere True 10000"] * 3


def test_a_script_that_ends_with_its_server_still_loading_says_nothing_and_leaves_nothing(tmp_path: Path):
    text = (
        "import threading\nfrom swift_loader import SwiftLoader\nfrom tests.torch_datasets import TorchNumbers\n"
        "SwiftLoader(TorchNumbers, {'count': 4}, 1, 1, 1, start_method='forkserver')\n"
    )
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", text]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
