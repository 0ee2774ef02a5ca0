"""Rows C of the faults: what a worker that is a copy of its trainer must not inherit."""

from __future__ import annotations

import os
import signal
import socket
import sys
from itertools import product
from pathlib import Path
from types import FrameType

import pytest

from tests.datasets import Numbers
from tests.fault.odd_servers import StandardInput
from tests.loaders import started
from tests.slow import start_methods
from tests.watching import descendants, flat, run_script


def test_c20_what_the_trainer_has_printed_and_not_written_yet_is_written_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    with open(tmp_path / "out", "w", encoding="utf-8") as out, monkeypatch.context() as buffered:
        buffered.setattr(sys, "stdout", out)
        print("before the start")
        with started(Numbers, start_method="fork") as loader:
            list(loader)
    assert (tmp_path / "out").read_text() == "before the start\n"


def test_c20_the_signal_handlers_of_a_trainer_do_not_run_in_its_workers(tmp_path: Path):
    """As a job's scheduler that tells all processes that the time is nearly over, and an event loop that is woken."""

    def save(_number: int, _frame: FrameType | None) -> None:
        (tmp_path / str(os.getpid())).touch()

    woken, wakes = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    handled = (signal.SIGUSR1, signal.SIGHUP)
    before = [signal.signal(number, save) for number in handled]
    waked = signal.set_wakeup_fd(wakes.fileno())
    try:
        with started(Numbers, start_method="fork", shuffle=False, data_queue_size=1, message_queue_size=1) as loader:
            iterator = iter(loader)
            found = next(iterator).tolist()
            family = descendants()
            for process, number in product(family, handled):
                process.send_signal(number)
            found += flat(iterator)
            assert all(process.is_running() for process in family)
        with pytest.raises(BlockingIOError):
            woken.recv(1)
    finally:
        signal.set_wakeup_fd(waked)
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)
        woken.close()
        wakes.close()
    assert found == list(range(64))
    assert not list(tmp_path.iterdir())


@start_methods
def test_c20_no_worker_reads_the_terminal_of_its_trainer(method: str):
    """It is in the background: the system would stop it."""
    reads, writes = os.pipe()
    kept = os.dup(0)
    os.dup2(reads, 0)
    try:
        with started(StandardInput, start_method=method, worker_per_consumer=1) as loader:
            assert set(next(iter(loader))) == {"/dev/null"}
        assert os.readlink("/proc/self/fd/0").startswith("pipe:")
    finally:
        os.dup2(kept, 0)
        for fd in (reads, writes, kept):
            os.close(fd)


FORKS_AT_ANY_MOMENT = """
import os, sys, threading
from swift_loader.engines.lifeline import Lifeline

def makes_and_cuts():
    while not is_over:
        Lifeline().cut()

def write_ends():
    for fd in range(3, 40):
        if os.path.exists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
            with open(f"/proc/self/fdinfo/{fd}") as file:
                yield int(file.read().split()[3], 8) & 3 == os.O_WRONLY

is_over, held = False, 0
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=makes_and_cuts)
thread.start()
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        os._exit(sum(write_ends()))
    held += os.waitpid(pid, 0)[1] != 0
is_over = True
thread.join()
print(held)
"""


def test_c21_no_child_that_a_trainer_forks_at_any_moment_keeps_a_worker_alive(tmp_path: Path):
    """It would, with the write end of a lifeline that was just made or is being cut by another thread."""
    assert run_script(tmp_path, FORKS_AT_ANY_MOMENT) == "0\n"
