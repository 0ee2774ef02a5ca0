"""Rows A18 and A21 of the faults, one engine at a time: servers that die, are late or cannot be had again."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from swift_loader import LoaderClosed, WorkerStartFailed
from swift_loader.engines import server
from swift_loader.engines.local import LocalEngine
from swift_loader.pool import pool
from swift_loader.settings.loader import LoaderConfig
from swift_loader.travel.heritage import Heritage
from swift_loader.wire import messages
from swift_loader.wire.messages import Setup
from swift_loader.wire.page import Control
from swift_loader.wire.recipe import Recipe
from swift_loader.wire.stacks import Stacks
from swift_loader.worker import zygote
from tests.datasets import Numbers, calls
from tests.fault.odd_servers import Gated, LeavesAThread, Printing
from tests.fault.oracle import in_thread
from tests.loaders import made, started, stream
from tests.slow import slow
from tests.watching import descendants, flat, servers_of_tests, until, workers

#: Holds a process as a debugger does, until its own input ends.
DEBUGGER = """
import ctypes, sys
held = ctypes.CDLL(None, use_errno=True).ptrace(0x4206, int(sys.argv[1]), None, None) == 0
print("holds" if held else ctypes.get_errno(), flush=True)
sys.stdin.read()
"""


class Ground:
    """An engine, and what its workers are given."""

    def __init__(self, method: str, dataset: Any = Numbers, kwargs: dict[str, Any] | None = None, **more: Any) -> None:
        config = LoaderConfig.parse(8, 1, 1, True, {"start_method": method, "seed": 1, **more})
        self.engine = LocalEngine(Recipe(dataset, kwargs or {}, None, config, 1, 0), method)
        self._control, self._stacks = Control.create(1), Stacks()
        self._heritage = Heritage.of_trainer()

    def launch(self, control_fd: int | None = None) -> tuple[Any, Any]:
        fds = (self._control.fd if control_fd is None else control_fd, self._stacks.fd)
        setup = Setup(0, 1, 1 << 20, self._heritage, has_payload=self.engine.sends_payload)
        return self.engine.launch("swift-worker-c0w0", setup, fds)

    def close(self) -> None:
        self.engine.close()
        self._control.close()
        self._stacks.close()


@contextmanager
def ground(method: str, *args: Any, **settings: Any) -> Iterator[Ground]:
    made = Ground(method, *args, **settings)
    try:
        made.engine.open()
        yield made
    finally:
        made.close()


@contextmanager
def launched(place: Ground) -> Iterator[tuple[Any, Any]]:
    process, channel = place.launch()
    try:
        yield process, channel
    finally:
        process.kill()
        until(lambda: is_gone(process), "its end")
        process.exit_status()
        channel.close()
        process.close()


pytestmark = pytest.mark.usefixtures("own_server")


def the_server() -> psutil.Process:
    """The one that this process has started."""
    children = psutil.Process().children()
    (found,) = [one for one in children if one.status() != psutil.STATUS_ZOMBIE and one.pid not in servers_of_tests()]
    return found


def its_branch() -> psutil.Process:
    """What has built a shared dataset, or the twin of a copy."""
    return branch_of(the_server())


def branch_of(server: psutil.Process) -> psutil.Process:
    (found,) = [one for one in server.children() if one.name() == "swift-zygote" and not is_gone_or_dead(one)]
    return found


def kill_the_server(which: Any = the_server) -> None:
    found = which()
    found.kill()
    until(lambda: not found.is_running() or found.status() == psutil.STATUS_ZOMBIE, "its end")


def is_gone(process: Any) -> bool:
    return is_readable(process.sentinel, 0)


def is_readable(fd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def hello(channel: Any) -> int:
    """The kind of the first message."""
    assert is_readable(channel.fileno(), 20)
    return int(channel.receive()[0][0])


def test_a21_a_server_that_cannot_be_had_again_is_asked_for_as_often_as_it_takes(monkeypatch: pytest.MonkeyPatch):
    with ground("forkserver") as place:
        kill_the_server()
        python = sys.executable
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        for _ in range(3):
            with pytest.raises(WorkerStartFailed, match="ENOENT"):
                place.launch()
        monkeypatch.setattr(sys, "executable", python)
        with launched(place) as (_, channel):
            assert hello(channel) == messages.HELLO


def test_a21_a_server_that_cannot_build_the_shared_dataset_again_is_none(tmp_path: Path):
    with ground("forkserver", Gated, {"folder": str(tmp_path)}, share_dataset=True) as place:
        kill_the_server(its_branch)
        (tmp_path / "raise").touch()
        with pytest.raises(WorkerStartFailed, match="could not build the dataset: OSError: no such mount now"):
            place.launch()
        with pytest.raises(WorkerStartFailed, match="could not build the dataset: OSError: no such mount now"):
            place.launch()
        until(lambda: not descendants(), "the end of what has not built it")
        (tmp_path / "raise").unlink()
        with launched(place) as (_, channel):
            assert hello(channel) == messages.HELLO


def test_a21_how_a_worker_ended_is_known_though_its_server_is_stopped():
    with ground("forkserver") as place, launched(place) as (process, _):
        the_server().send_signal(signal.SIGSTOP)
        process.kill()
        until(lambda: is_gone(process))
        assert process.exit_status() == -signal.SIGKILL


def test_a21_a_server_that_was_stopped_is_replaced_when_it_is_needed():
    with ground("forkserver") as place:
        stopped = the_server()
        stopped.send_signal(signal.SIGSTOP)
        with launched(place) as (process, channel):
            assert hello(channel) == messages.HELLO
            assert psutil.Process(process.pid).ppid() == the_server().pid != stopped.pid
            assert not stopped.is_running()


def test_a21_a_copy_of_the_trainer_that_dies_or_stops_has_a_twin_and_that_one_too():
    with ground("fork", allow_fork=True) as place:
        first = the_server()
        for signal_number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL):
            twin = branch_of(first)
            first.send_signal(signal_number)
            with launched(place) as (process, channel):
                assert hello(channel) == messages.HELLO
                assert psutil.Process(process.pid).ppid() == twin.pid
            first = twin


def test_a21_copies_of_the_trainer_that_have_all_died_are_told():
    with ground("fork", allow_fork=True) as place:
        kill_the_server(its_branch)
        kill_the_server()
        for _ in range(2):
            with pytest.raises(WorkerStartFailed, match="cannot be made again"):
                place.launch()


def test_a21_a_twin_that_dies_alone_is_replaced():
    with ground("fork", allow_fork=True) as place:
        for _ in range(2):
            gone = its_branch()
            gone.kill()
            until(lambda gone=gone: is_gone_or_dead(gone))
            with launched(place) as (_, channel):
                assert hello(channel) == messages.HELLO
            assert its_branch() != gone


def is_gone_or_dead(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a21_of_workers_that_have_ended_the_server_keeps_the_last_corpse_only():
    with ground("forkserver") as place:
        for _ in range(3):
            with launched(place):
                pass
            assert len(the_server().children()) == 1


def test_a9_a_worker_that_ends_under_a_debugger_stops_nobody():
    """Its pidfd tells that it is gone, the kernel how; its parent cannot wait for it before the debugger lets go."""
    with ground("forkserver") as place:
        process, channel = place.launch()
        command = [sys.executable, "-c", DEBUGGER, str(process.pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as debugger:
            said = debugger.stdout.readline().strip()
            process.kill()
            until(lambda: is_gone(process), "its end")
            begun = time.monotonic()
            status = process.exit_status()
            took_s = time.monotonic() - begun
            debugger.stdin.close()
        channel.close()
        process.close()
    if said != "holds":
        pytest.skip(f"this machine lets nobody debug another process (error {said})")
    assert took_s < 30  # it was 120 s, for all
    assert status == -signal.SIGKILL


def test_a17_a_shared_dataset_may_take_longer_to_build_than_any_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(server._LIMITS_S, zygote.FORK, 0.3)
    (tmp_path / "wait").touch()
    threading.Timer(0.8, (tmp_path / "wait").unlink).start()
    with ground("forkserver", Gated, {"folder": str(tmp_path)}, share_dataset=True):
        assert len(calls(tmp_path)) == 1


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_c9_closing_ends_the_wait_for_a_shared_dataset(again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """At the start, or when the server has died and another builds it."""
    monkeypatch.setattr(pool, "_JOIN_TIMEOUT_S", 60.0)
    settings = {"share_dataset": True, "worker_per_consumer": 1, "start_method": "forkserver"}

    def close() -> None:
        until(lambda: len(calls(tmp_path, "init")) == 1 + again, "building")
        begun = time.monotonic()
        loader.close()
        took_s.append(time.monotonic() - begun)

    took_s: list[float] = []
    with made(Gated, {"folder": str(tmp_path)}, **settings) as loader:
        if again:
            loader.start(0)
            (tmp_path / "wait").touch()
            (worker,) = until(workers)
            kill_the_server(its_branch)
            worker.kill()
            close()
        else:
            (tmp_path / "wait").touch()
            closing = threading.Thread(target=close)
            closing.start()
            with pytest.raises(LoaderClosed):
                in_thread(lambda: loader.start(0))
            closing.join(20)
    assert took_s[0] < 30  # to reach: 0.3 s; else it would wait for as long as it waits for threads
    assert not descendants()


@pytest.mark.parametrize(("method", "needed"), [("forkserver", 5), ("fork", 5), ("spawn", 7)])
def test_d4_at_each_number_of_free_descriptors_a_worker_is_started_or_the_limit_is_told(method: str, needed: int):
    with ground(method) as place:
        for free in range(needed):
            with few_descriptors(free), pytest.raises(WorkerStartFailed, match=r"EMFILE.*files is \d+ \(ulimit -n\)"):
                place.launch()
        with few_descriptors(needed), launched(place):
            pass
        left = [] if method == "spawn" else [one for one in the_server().children() if one.name() != "swift-zygote"]
        assert len(left) <= 1  # none, but for the last one's corpse


@contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    """This process may open so many files and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(free):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("method", ["forkserver", slow("spawn")])
def test_a18_a_worker_that_cannot_be_told_what_to_do_is_ended(method: str):
    with ground(method) as place:
        with pytest.raises(WorkerStartFailed, match="EBADF"):
            place.launch(control_fd=9_999)
        assert not workers()


def test_b14_a_spawned_worker_that_leaves_does_not_wait_for_the_threads_of_its_dataset():
    with ground("spawn", LeavesAThread) as place, launched(place) as (process, channel):
        assert hello(channel) == messages.HELLO
        channel.send(bytes((messages.RETIRE,)))
        assert is_readable(process.sentinel, 20)
        assert process.exit_status() == 0


def test_d8_what_a_shared_dataset_has_printed_and_nobody_takes_ends_no_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    expected = stream(Numbers, worker_per_consumer=0)
    standard_output = os.dup(1)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        os.dup2(full, 1)
        with started(Printing, share_dataset=True) as loader:
            found = flat(loader)
    finally:
        os.dup2(standard_output, 1)
        os.close(full)
        os.close(standard_output)
    assert found == [number for _, batch in expected for number in batch]
