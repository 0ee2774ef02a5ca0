"""Runs a module in a session of its own, with a deadline, and leaves no process of it behind.

What it says goes to files instead of pipes: a worker that outlives its trainer would hold a pipe open. Whatever loses
its parent becomes a child of this process, which can so name it and end it. Knows nothing of what is run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine
from swift_loader.engines.nursery import shared

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.0005


@dataclass(frozen=True)
class Ended:
    """What became of it."""

    #: Exit code, or minus the signal; None: it was still running at the deadline, and killed.
    code: int | None
    out: str
    err: str
    #: Processes that were still there after its end, or at the deadline.
    left: int


def run_apart(words: Sequence[str], deadline_s: float, before: Sequence[str] = ()) -> Ended:
    """Runs ``python -m words...``; ``before`` is a command that runs it in turn."""
    adopt_orphans()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen(
            [*before, sys.executable, "-m", *words],
            cwd=machine.ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": folder},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code: int | None = child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            left = end_all([*below(child.pid), child.pid] if child.returncode is None else children())
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
    return Ended(code, said[0], said[1], left)


def adopt_orphans() -> None:
    """From now on, descendants that lose their parent become children of this process."""
    shared.end()  # else there is a child that stays
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel lets no process adopt orphans")


def children(pid: int | None = None) -> list[int]:
    """The children of a process, this one by default."""
    found = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children"):
        with suppress(OSError):  # a thread, or all of it, has just gone
            found += [int(word) for word in task.read_text().split()]
    return found


def below(pid: int | None = None) -> list[int]:
    """All descendants of a process."""
    return list(_below(pid or os.getpid()))


def _below(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _below(child)


def workers(pid: int | None = None) -> list[int]:
    """The loader's workers below a process: swift_loader's and torch's name themselves; forks of torch's do not always.

    A server that forks workers is none itself.
    """
    return [each for each in below(pid) if name_of(each).startswith(("swift-worker", "pt_data_worker"))]


def name_of(pid: int) -> str:
    """What ``ps`` shows; nothing for what is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        name = words[0].partition("(")[2]
    except OSError:
        return ""
    return "" if words[2].split()[0] in "ZX" else name


def all_gone(deadline_s: float) -> float | None:
    """Waits until this process has neither children nor orphans to reap; the moment at which that was, or None."""
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return time.monotonic()
        if pid == 0:
            if time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_S)


def end_all(pids: Sequence[int]) -> int:
    """Kills these and whatever they leave to us; says how many of them were still alive."""
    alive = [pid for pid in pids if name_of(pid)]
    for _ in range(100):
        for pid in {*pids, *children()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if all_gone(0.1) is not None:
            break
    return len(alive)
