"""How long the family of a training process outlives it: workers, fork servers, and all that these have started.

    python -m tests.fault.orphans busy-spawn closing-fork ...      one JSON object per line
    python -m tests.fault.orphans --rounds 1000                    as many trainers, case by case

A nursery forks trainers that have all imports behind them. It is their subreaper, so whoever of a family loses its
parent becomes the nursery's own child: when the nursery has no child left, all are gone. Nothing is polled through
/proc, and nobody is overlooked.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swift_loader import SwiftLoader
from tests.fault.hanging import Hanging

METHODS = ("forkserver", "spawn", "fork")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_DEADLINE_S = 60.0


#: What a family is at when its trainer goes, and how many processes must have said so before. The others say nothing:
#: a moment is drawn.
STATES = {"idle": 1, "busy": 2, "in C": 2, "asleep": 2, "stopped": 2, "building": 1, "parents": 2, "nested": 1,
          "starting": 1, "closing": 3}  # fmt: skip
_DRAWN_S = {"starting": 0.4, "closing": 0.8}


def train(folder: Path, state: str, method: str) -> None:
    """What a trainer does: it never ends by itself."""
    settings: dict[str, Any] = {"shuffle": False, "start_method": method, "data_queue_size": 4}
    if state == "starting":
        (folder / f"at-{os.getpid()}").touch()
    loader = SwiftLoader(Hanging, {"folder": str(folder), "state": state}, 8, 1, 2, **settings)
    loader.start(0)
    next(iter(loader))
    if state == "closing":
        _until(lambda: len(list(folder.iterdir())) == 2)
        (folder / "at-close").touch()
        loader.close()
    if state in ("idle", "nested"):
        (folder / f"at-{os.getpid()}").touch()
    while True:
        signal.pause()


def outlived(
    trainer: Callable[[Path], None], ready: int, end: Callable[[int], None], after_s: float = 0.0
) -> tuple[float, int]:
    """Lets a trainer run until ``ready`` processes have told, and ``after_s`` more; then ends it.

    Gives back how many seconds later the last of its family was gone, and the trainer's own exit code. Nobody may have
    anything open that has a name in shared memory, in the temporary folder, or as a socket.
    """
    folder = Path(tempfile.mkdtemp(prefix="orphans-"))
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        trainer(folder)
        sys.exit(0)
    try:
        _until(lambda: len(list(folder.iterdir())) >= ready)
        time.sleep(after_s)
        named = _names_held(pid)
        assert not named, named
        end(pid)
        return _the_end_of_all(pid)
    except BaseException:
        _kill_all()
        raise
    finally:
        shutil.rmtree(folder)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the family did not come into its state"
        time.sleep(0.001)


def _the_end_of_all(trainer: int) -> tuple[float, int]:
    begun = time.monotonic()
    code = 0
    while time.monotonic() - begun < _DEADLINE_S:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return time.monotonic() - begun, code
        if pid == trainer:
            code = os.waitstatus_to_exitcode(status)
        elif pid == 0:
            time.sleep(0.0002)
    raise AssertionError(f"still there after {_DEADLINE_S} s: {children()}")


def children() -> list[int]:
    me = os.getpid()
    return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]


def _names_held(pid: int) -> set[str]:
    """What a family has open that has a name anybody could find."""
    folders = (f"{tempfile.gettempdir()}/", "/dev/shm/")
    sockets = {line.split()[6]: line.split()[7] for line in _sockets() if len(line.split()) > 7}
    named = set()
    for one in [pid, *_descendants(pid)]:
        for to in _links(Path(f"/proc/{one}/fd")):
            if to.startswith(folders) and not to.endswith("(deleted)") and "/orphans-" not in to:  # the dataset's own
                named.add(to)
            elif to.startswith("socket:[") and (path := sockets.get(to[8:-1])):
                named.add(path)
    return named - set(_links(Path("/proc/self/fd")))  # what was open before


def _sockets() -> list[str]:
    return Path("/proc/net/unix").read_text().splitlines()[1:]


def _links(folder: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError):  # the process is gone
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                found.append(str(path.readlink()))
    return found


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


def _kill_all() -> None:
    while left := children():
        for child in left:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def be_nursery() -> None:
    """Orphans become this process's children from now on."""
    import torch  # noqa: F401 - once for all trainers, and not in workers, which import this file

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def killed(state: str, method: str, chance: random.Random) -> dict[str, Any]:
    """One trainer, killed in a state."""
    after_s = chance.uniform(0, _DRAWN_S.get(state, 0.0))
    seconds, code = outlived(
        lambda folder: train(folder, state, method),
        STATES[state],
        lambda pid: os.kill(pid, signal.SIGKILL),
        after_s,
    )
    assert code == -signal.SIGKILL, code
    return {"state": state, "method": method, "after_s": round(after_s, 4), "seconds": round(seconds, 6)}


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--rounds", type=int, default=1, help="trainers to be killed in all")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    be_nursery()
    chance = random.Random(asked.seed)
    cases = [tuple(case.rsplit("-", 1)) for case in asked.cases] or list(itertools.product(STATES, METHODS))
    for number in range(max(asked.rounds, len(cases))):
        print(json.dumps(killed(*cases[number % len(cases)], chance)), flush=True)


if __name__ == "__main__":
    # Under its importable name, so that workers find the dataset there.
    from tests.fault import orphans

    orphans.main()
