"""A training script that something happens to, with either loader; and what watches it until nothing of it is left.

`python -m benchmarks.trainer LOADER STATE` is the script. It says "ready" on standard output when its workers come into
the state: idle, busy (a loop in Python), C loop (one call that holds the interpreter lock), stopped (by the watcher);
or when its loader begins to start, or to close; or it trains on and on (train), and on SIGTERM takes eight more
batches, saves a checkpoint and leaves (checkpoint).

Where it has to be quick, the watcher forks the script from itself, since torch is loaded there already. It adopts what
the script leaves behind, so that it knows when the last process is gone.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.apart import adopt_orphans, all_gone, children, end_all, workers
from benchmarks.fault_data import Occupied, Worked
from benchmarks.fault_figures import Figure, Limit, whole
from swift_loader import SwiftLoader
from tests.fault.oracle import BATCH
from tests.leak_check import Residue, leaks_since

STATES = ("idle", "busy", "C loop", "stopped", "start", "close")
WORKERS = 2
MORE_BATCHES = 8
READY_S, DEADLINE_S = 60.0, 15.0

Tell = Callable[[str], None]


@contextmanager
def loading(side: str, dataset: Callable[..., Any], /, batch_size: int = BATCH, **kwargs: Any) -> Iterator[Any]:
    """A loader of either side, with two workers, in the order of the samples."""
    if side == "swift":
        with SwiftLoader(dataset, kwargs, batch_size, 1, WORKERS, shuffle=False, seed=1) as loader:
            yield loader
    else:
        import torch.utils.data

        yield torch.utils.data.DataLoader(dataset(**kwargs), batch_size, num_workers=WORKERS)


def train(side: str, state: str, tell: Tell, folder: str = ".") -> None:
    """The script."""
    if state in ("train", "checkpoint"):
        train_until_told(side, Path(folder), tell)
        return
    if state == "start":
        tell("ready")
    with loading(side, Occupied, how=state) as loader:
        batches = iter(loader)
        if state == "C loop" and side == "torch":
            tell("ready")  # its workers send through a thread, which that loop holds up: no batch ever comes
        next(batches)
        if state != "start":
            tell("ready")
        if state == "close" and side == "torch":
            batches._shutdown_workers()  # what its end comes to
        elif state == "close":
            loader.close()
        time.sleep(1000)


def train_until_told(side: str, folder: Path, tell: Tell) -> None:
    """Trains until SIGTERM; the running step and some more are still done before it saves what it has seen."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    seen: list[int] = []
    left = MORE_BATCHES
    with loading(side, Worked, count=10_000 * BATCH, work_s=0.0002) as loader:
        for step, batch in enumerate(loader):
            seen += batch["index"].tolist()
            if step == 0:
                tell("ready")
            left -= bool(told)
            if left < 0:
                break
    (folder / "checkpoint.json").write_text(json.dumps(seen))


# What watches it ------------------------------------------------------------------------------------------------------


def begin(side: str, state: str, folder: str = ".") -> int:
    """Forks the script into a session of its own; gives back its pid once it is ready."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_script(side, state, folder, writer)
    os.close(writer)
    try:
        if not select.select([reader], [], [], READY_S)[0] or not os.read(reader, 100):
            end_all([pid])
            raise RuntimeError(f"the training script with {side} did not become ready ({state})")
    finally:
        os.close(reader)
    return pid


def _be_the_script(side: str, state: str, folder: str, writer: int) -> None:
    code = 1
    try:
        os.setsid()
        train(side, state, lambda word: (os.write(writer, word.encode()), None)[1], folder)
        code = 0
    except BaseException:  # noqa: BLE001 - a fork must not return into its parent's code
        if state != "checkpoint":  # there it is told by the checkpoint that is missing
            traceback.print_exc()
    finally:
        os._exit(code)


def killed_ms(side: str, state: str, after_s: float) -> float | None:
    """Kills the script in that state; milliseconds until no process of it was left, or None: they live on."""
    pid = begin(side, state)
    if state == "stopped":
        deadline = time.monotonic() + READY_S
        while len(workers(pid)) < WORKERS and time.monotonic() < deadline:
            time.sleep(0.001)
        for worker in workers(pid):
            os.kill(worker, signal.SIGSTOP)
    time.sleep(after_s)
    begun = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    ended = all_gone(DEADLINE_S)
    if ended is None:
        end_all(children())
        return None
    return 1000 * (ended - begun)


def orphans(times: int, seed: int) -> list[Figure]:
    """The trainer is killed by SIGKILL while its workers or its loader are at something."""
    adopt_orphans()
    chance = random.Random(seed)
    figures = []
    clean = []
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    before = Residue.take()
    for state in STATES:
        # Starting takes some 150 ms, closing with a busy worker 500: any moment of it.
        longest_s = {"start": 0.2, "close": 0.5}.get(state)
        took = []
        for _ in range(times):
            took.append(killed_ms("swift", state, chance.uniform(0, longest_s) if longest_s else 0.1))
            clean.append(not leaks_since(before, grace_s=0.0))
        at_most = (Limit("max", at_most=100),)
        figures.append(Figure(f"orphans {state}", f"trainer dies, {state}", "ms", _or_deadline(took), at_most))
    return [*figures, whole("leftovers", "nothing left then", clean)]


def _or_deadline(took: list[float | None]) -> list[float]:
    return [1000 * DEADLINE_S if each is None else each for each in took]


def checkpoint_kept(side: str, after_s: float) -> bool:
    """Sends SIGTERM to the script's whole group; whether it left a checkpoint of all that it had to see, in order."""
    with TemporaryDirectory() as folder:
        pid = begin(side, "checkpoint", folder)
        time.sleep(after_s)
        os.killpg(pid, signal.SIGTERM)
        if all_gone(DEADLINE_S) is None:
            end_all(children())
            return False
        path = Path(folder) / "checkpoint.json"
        seen = json.loads(path.read_text()) if path.exists() else []
    return len(seen) > MORE_BATCHES * BATCH and seen == list(range(len(seen)))


def checkpoints(times: int, seed: int) -> list[Figure]:
    """SIGTERM to the whole group at a random moment, as a cluster's scheduler sends it."""
    adopt_orphans()
    chance = random.Random(seed)
    kept = [checkpoint_kept("swift", chance.uniform(0, 0.3)) for _ in range(times)]
    return [whole("checkpoints", "SIGTERM: checkpoints kept", kept)]


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], lambda word: print(word, flush=True))
