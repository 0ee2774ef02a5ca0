"""`swift-loader top` sees the loaders of this user that run here, the stuck ones too, and nothing of anybody else's."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from swift_loader.cli import boards
from swift_loader.cli import main as cli
from tests.datasets import Numbers
from tests.loaders import made, started
from tests.other_users import run_apart
from tests.watching import ROOT, begin_warm, descendants, until


def seen_of(pid: int) -> list[boards.Found]:
    return [one for one in boards.find() if one.pid == pid]


SCRIPT = """
from tests.sleeping import Sleeps
from tests.loaders import made
with made(Sleeps, {"count": 64}, nb_consumer=2, worker_per_consumer=2, shuffle=False, batch_size=8) as loader:
    loader.start(0)
    for batch in loader:
        pass
"""


def test_a_stuck_loader_is_seen_with_the_sample_that_it_is_stuck_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with begin_warm(tmp_path, SCRIPT) as script:
        try:
            is_stuck = lambda: [  # noqa: E731
                one for one in seen_of(script.pid) if one.shown.is_waiting and one.shown.batches == 2
            ]
            until(is_stuck, "the third batch is waited for", deadline_s=60)
            until(lambda: any(worker.index == 20 for worker in seen_of(script.pid)[0].shown.workers))
            assert cli.main(["top", "--once", "--json"]) == 0
            (told,) = [one for one in json.loads(capsys.readouterr().out)["loaders"] if one["pid"] == script.pid]
            assert (told["shown"]["consumer"], told["shown"]["consumer_count"], told["shown"]["step"]) == (0, 2, 2)
            assert told["shown"]["dataset"] == "Sleeps"
            assert told["job"] == psutil.Process(script.pid).ppid()
            stuck, *_ = [worker for worker in told["shown"]["workers"] if worker["index"] == 20]
            assert (stuck["stage"], stuck["state"]) == ("fetches", "serves")
            assert stuck["pid"] in {process.pid for process in descendants(script.pid)}
            # Nothing of the trainer's runs: what its workers are at is read from the page that they write.
            os.kill(script.pid, signal.SIGSTOP)
            assert cli.main(["top", "--once"]) == 0
            text = capsys.readouterr().out
            assert re.search(rf"pid {script.pid}  Sleeps .* step 2/", text)
            assert "fetches sample 20 " in text
            assert max(map(len, text.splitlines())) <= 80
        finally:
            script.kill()
            script.wait(60)
    assert not seen_of(script.pid)


def test_a_loader_is_seen_from_its_start_to_its_close_and_not_in_a_forked_child():
    with made(Numbers, worker_per_consumer=0) as loader:
        assert not seen_of(os.getpid())
        loader.start(0)
        (found,) = seen_of(os.getpid())
        assert (found.shown.dataset, found.shown.workers, found.shown.batches) == ("Numbers", [], 0)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        try:
            assert not seen_of(child)
            assert len(seen_of(os.getpid())) == 1
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert not seen_of(os.getpid())


def test_counts_errors_and_deaths_are_shown(tmp_path: Path):
    from tests.datasets import Deadly, Failing

    with started(Failing, {"count": 40, "bad": (30,)}, worker_per_consumer=0, shuffle=False) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        with pytest.raises(Exception, match="disc error"):
            next(batches)
        (found,) = seen_of(os.getpid())
    assert (found.shown.batches, found.shown.samples, found.shown.epoch, found.shown.step_count) == (3, 24, 0, 5)
    assert "disc error at 30" in found.shown.last[0]
    with started(Deadly, {"folder": str(tmp_path), "times": 1}, worker_per_consumer=1, shuffle=False) as loader:
        list(loader)
        until(lambda: seen_of(os.getpid())[0].shown.workers[0].deaths == 1)
        assert "SIGKILL" in seen_of(os.getpid())[0].shown.workers[0].last_death


def test_a_forgotten_loader_is_shown_no_more():
    loader = made(Numbers, worker_per_consumer=1)
    loader.start(0)
    assert seen_of(os.getpid())
    with pytest.warns(ResourceWarning, match="was not closed"):
        del loader
    until(lambda: not seen_of(os.getpid()))


def test_looking_survives_loaders_that_come_and_go():
    stop = threading.Event()
    found: list[Any] = []

    def look() -> None:
        while not stop.is_set():
            found.append(len(seen_of(os.getpid())))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(30):
            with started(Numbers, worker_per_consumer=0) as loader:
                next(iter(loader))
    finally:
        stop.set()
        looker.join(30)
    assert not looker.is_alive()
    assert set(found) <= {0, 1}


FOREIGN = """
import json, os, subprocess, sys
from swift_loader.cli import boards
SHOWS = '''
import sys
from tests.datasets import Numbers
from tests.loaders import started
with started(Numbers, worker_per_consumer=0) as loader:
    print("ready", flush=True)
    sys.stdin.readline()
'''
LOOKS = '''
from swift_loader.cli import boards
print(len(boards.find()))
'''
def python(user, script):
    return subprocess.Popen([sys.executable, "-c", script], user=user, group=user, extra_groups=[],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
with python(12345, SHOWS) as owner:
    assert owner.stdout.readline() == "ready\\n"
    with python(12345, LOOKS) as same, python(23456, LOOKS) as other:
        print(same.stdout.read().strip(), other.stdout.read().strip(),
              len([one for one in boards.find() if one.pid == owner.pid]))
    owner.communicate("\\n")
"""


def test_loaders_of_other_users_are_neither_seen_nor_shown():
    assert run_apart(FOREIGN) == "1 0 0\n"


def test_in_a_terminal_it_is_refreshed_until_q_and_gives_the_terminal_back():
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "swift_loader.cli.main", "top", "--interval", "0.1"]
    top = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    os.close(theirs)
    try:
        text = read_until(ours, lambda text: text.count("\033[H") >= 3)
        os.write(ours, b"j\033[A")
        text += read_until(ours, lambda text: "\033[H" in text)
        os.write(ours, b"q")
        text += read_until(ours, lambda text: "\033[?1049l" in text)
        assert top.wait(30) == 0
    finally:
        top.kill()
        top.wait(30)
        os.close(ours)
    assert text.startswith("\033[?1049h\033[?25l\033[H")
    assert "swift-loader top" in text
    assert text.endswith("\033[?25h\033[?1049l")


def read_until(fd: int, is_enough: Any) -> str:
    text, deadline = "", time.monotonic() + 40
    while not is_enough(text):
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"only this came: {text!r}"
        text += os.read(fd, 65536).decode()
    return text
