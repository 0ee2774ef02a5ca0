"""What happens to workers, measured in a process that uses the loader. Each function is one measurement.

Workers are killed, or end, stop and hang, by the hand of this process; what was delivered is judged by the tests'
oracle. When the loader knows of a death is seen by wrapping `Supervisor.died`, which its telecom thread calls first.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from benchmarks.apart import workers
from benchmarks.fault_data import Occupied, Signed, Worked, leave_when_told
from benchmarks.fault_figures import Figure, Limit, whole
from swift_loader.pool.supervisor import Supervisor
from tests.fault.oracle import BATCH, Delivered, World, differences, in_thread, record
from tests.leak_check import Residue, leaks_since
from tests.loaders import started

WORLD = World("forkserver", 2, in_thread=False)
STORM_EVERY_S = 0.1
WORK_S = 0.002
#: How a worker comes to its end, as (name, signal): the first two are answered by `leave_when_told`.
ENDINGS = (
    ("exit 0", signal.SIGUSR1),
    ("exit 1", signal.SIGUSR2),
    ("SIGKILL", signal.SIGKILL),
    ("SIGSEGV", signal.SIGSEGV),
)


def one_kill(epochs: int, seed: int) -> list[Figure]:
    """Epochs in each of which one worker is killed at a random moment, against the same epochs made without workers."""
    chance = random.Random(seed)
    data = {"count": 20 * BATCH, "work_s": 0.0001}
    exact = []
    plain = {"worker_per_consumer": 0, "batch_size": BATCH}
    with started(Worked, data, **WORLD.settings) as loader, started(Worked, data, **plain) as reference:
        for _ in range(epochs):
            kill_at = chance.randrange(1, len(loader) - 4)

            def kill(step: int, kill_at: int = kill_at) -> None:
                if step == kill_at:
                    time.sleep(chance.uniform(0, 0.002))
                    kill_one(chance)

            exact.append(not differences(record(loader, meanwhile=kill), record(reference)))
    return [whole("one_kill", "one kill: epochs exact", exact)]


def kill_one(chance: random.Random) -> bool:
    """Kills one of the workers that there are."""
    victims = workers()
    with suppress(ProcessLookupError):
        if victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
            return True
    return False


def storm(kills: int, seed: int) -> list[Figure]:
    """Epochs with a kill every 100 ms, each followed by one without; samples that take 2 ms of a processor."""
    chance = random.Random(seed)
    data = {"count": min(100, kills * 20) * BATCH, "work_s": WORK_S}
    wrong: list[str] = []
    shares: list[float] = []
    killed = 0
    with (
        started(Worked, data, **WORLD.settings) as loader,
        started(Worked, {**data, "work_s": 0}, worker_per_consumer=0, batch_size=BATCH) as reference,
    ):
        while killed < kills:
            took_s = []
            for every_s in (STORM_EVERY_S, 0.0):
                found, seconds, kills_now = _epoch_under(every_s, chance, loader)
                took_s.append(seconds)
                killed += kills_now
                wrong.append(" ".join(differences(found, record(reference))))
            shares.append(took_s[1] / took_s[0])
    lost, doubled = (float(sum(word in words for words in wrong)) for word in ("lost", "twice"))
    exact = [not words for words in wrong]
    return [
        whole("storm", "storm: epochs exact", exact),
        whole("storm_kills", "storm: kills survived", [True] * killed if all(exact) else [False] * killed),
        Figure("storm_lost", "storm: losing epochs", "n", [lost], (Limit("max", at_most=0),)),
        Figure("storm_doubled", "storm: doubling epochs", "n", [doubled], (Limit("max", at_most=0),)),
        Figure("storm_share", "storm: throughput", "share", shares, (Limit("median", at_least=0.5),)),
    ]


def _epoch_under(every_s: float, chance: random.Random, loader: Any) -> tuple[list[Delivered], float, int]:
    with _nemesis(every_s, chance) as count:
        begun = time.monotonic()
        found = record(loader)
        return found, time.monotonic() - begun, count[0]


@contextmanager
def _nemesis(every_s: float, chance: random.Random) -> Iterator[list[int]]:
    """Kills a worker every so many seconds, or never; counts its kills."""
    stop, count = threading.Event(), [0]

    def run() -> None:
        while every_s and not stop.wait(every_s):
            count[0] += kill_one(chance)

    thread = threading.Thread(target=run, name="nemesis")
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join(5)


@contextmanager
def deaths_seen() -> Iterator[dict[int, float]]:
    """When the telecom thread took note of a worker's death, by its pid."""
    seen: dict[int, float] = {}
    original = Supervisor.died

    def died(supervisor: Supervisor, line: Any) -> float | None:
        seen[line.process.pid] = time.monotonic()
        return original(supervisor, line)

    Supervisor.died = died  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        Supervisor.died = original  # type: ignore[method-assign]


def deaths(times: int, _seed: int) -> list[Figure]:
    """From the signal until the death is known, and until the first batch of the replacement, in every way and thread.

    One worker, so that every batch that comes afterwards is the replacement's.
    """
    seen_ms: list[float] = []
    delivers_ms: list[float] = []
    figures = []
    for how, number in ENDINGS:
        for place, runs in (("main", _here), ("thread", in_thread)):
            settings = {"worker_init": leave_when_told, "multithread": True}
            seen, delivers = runs(lambda number=number, settings=settings: _signalled(number, times, settings))
            seen_ms += seen
            delivers_ms += delivers
            figures.append(Figure(f"seen {how} {place}", f"  {how}, {place}", "ms", seen))
    seen_limits = (Limit("median", at_most=2), Limit("p99", at_most=50))
    return [
        Figure("death_seen", "death seen", "ms", seen_ms, seen_limits),
        *figures,
        Figure("replaced", "replacement delivers", "ms", delivers_ms, (Limit("p95", at_most=300),)),
    ]


def _here(action: Callable[[], Any]) -> Any:
    return action()


def _signalled(number: int, times: int, settings: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Signals one worker after the other; milliseconds until the death was known, and until another delivered."""
    seen_ms, delivers_ms = [], []
    world = World("forkserver", 1, in_thread=False).settings
    with deaths_seen() as seen, started(Signed, {}, **world, **settings) as loader:
        batches = iter(loader)
        for _ in range(times):
            pid = int(next(batches)[-1])
            begun = time.monotonic()
            os.kill(pid, number)
            while int(next(batches)[0]) == pid:
                pass
            delivers_ms.append(1000 * (time.monotonic() - begun))
            seen_ms.append(1000 * (seen[pid] - begun))
    return seen_ms, delivers_ms


def stopped(times: int, _seed: int) -> list[Figure]:
    """From SIGSTOP of the only worker until another delivers."""
    _, delivers_ms = _signalled(signal.SIGSTOP, times, {})
    return [Figure("stopped", "stopped: next batch", "ms", delivers_ms, (Limit("max", at_most=2000),))]


def closing(times: int, _seed: int) -> list[Figure]:
    """How long `close` takes, with two workers in various states."""
    figures = []
    for how, at_most in (("idle", 1000), ("stopped", 3000), ("sleep", 3000), ("C loop", 3000)):
        took_ms = [_closing_ms(how) for _ in range(times)]
        label = f"close, {'healthy' if how == 'idle' else how}"
        figures.append(Figure(f"close {how}", label, "ms", took_ms, (Limit("max", at_most=at_most),)))
    return figures


def _closing_ms(how: str) -> float:
    with started(Occupied, {"how": how}, **WORLD.settings, shuffle=False) as loader:
        next(iter(loader))
        while len(workers()) < WORLD.workers:
            time.sleep(0.001)
        time.sleep(0.1)  # by now they are where they are to be met
        if how == "stopped":
            for pid in workers():
                os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        loader.close()
        return 1000 * (time.monotonic() - begun)


def cycles(times: int, _seed: int) -> list[Figure]:
    """Loaders started, used for a batch and closed; what is left of all of them is a leak."""
    _cycle_ms()  # what is loaded and made once
    before = Residue.take()
    took_ms = [_cycle_ms() for _ in range(times)]
    leaks = leaks_since(before)
    return [
        Figure("cycle", "start, batch, close", "ms", took_ms),
        Figure("cycle_leaks", "left after all of them", "n", [float(len(leaks))], (Limit("max", at_most=0),)),
    ]


def _cycle_ms() -> float:
    begun = time.monotonic()
    with started(Worked, {"count": 20 * BATCH}, **WORLD.settings) as loader:
        next(iter(loader))
    return 1000 * (time.monotonic() - begun)
