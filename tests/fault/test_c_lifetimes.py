"""Rows C10 and C11 of the faults: loaders that are forgotten in every way, and loaders started and closed for ever.

Two hundred cycles here; ten thousand, with the memory that they take: ``-m soak``.
"""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import Numbers
from tests.fault.soaked import Soak
from tests.loaders import made, started
from tests.slow import slow, start_methods
from tests.watching import descendants, run_script, run_warm, told_by, until, warm_python

MANY = {"count": 1 << 20}


def _dropped() -> None:
    loader = made(Numbers, MANY)
    loader.start(0)
    next(iter(loader))


def _in_a_circle() -> None:
    loader = made(Numbers, MANY)
    loader.start(0)
    loader.itself = [iter(loader), loader]  # type: ignore[attr-defined]
    next(loader.itself[0])
    del loader
    gc.collect()


def _generator(loader: Any) -> Iterator[Any]:
    yield from loader


def _in_a_closed_generator() -> None:
    loader = made(Numbers, MANY)
    loader.start(0)
    batches = _generator(loader)
    next(batches)
    batches.close()


@pytest.mark.parametrize("forget", [_dropped, _in_a_circle, _in_a_closed_generator])
def test_c10_a_forgotten_loader_says_so_and_leaves_nothing(forget: Callable[[], None]):
    with pytest.warns(ResourceWarning, match="was not closed"):
        forget()
    until(lambda: not descendants(), "the end of the workers", deadline_s=10)  # to reach: 1 s


def test_c10_a_loader_in_a_kept_traceback_lives_until_that_goes():
    def fails() -> None:
        loader = made(Numbers, MANY)
        loader.start(0)
        for _ in loader:
            raise KeyError("in the loop")

    try:
        fails()
    except KeyError as error:
        kept = error
    assert descendants()
    with pytest.warns(ResourceWarning, match="was not closed"):
        kept.__traceback__ = None
    until(lambda: not descendants(), "the end of the workers", deadline_s=10)


def test_c10_a_loop_that_is_left_and_begun_again_goes_on_with_the_next_epoch():
    with started(Numbers, {"count": 64}, shuffle=False) as loader:
        for _ in loader:
            break
        assert [batch[0].item() for batch in loader] == list(range(0, 64, 8))


AT_EXIT = """
import atexit, json, os, pathlib, sys, threading, warnings, time
from functools import partial
from swift_loader import SwiftLoader
from tests.datasets import Numbers, Slow
from tests.fault import orphans

def loader_of(method, dataset=Slow, **kwargs):
    loader = SwiftLoader(dataset, {"count": 1 << 30, **kwargs}, 4, 1, 2, start_method=method)
    loader.start(0)
    return loader

def held_open(method):
    global loader, iterator
    loader = loader_of(method)
    iterator = iter(loader)
    next(iterator)

def daemon_iterates(method):
    global loader
    loader = loader_of(method)
    started = threading.Event()
    def run():
        for batch in loader:
            started.set()
            time.sleep(5)  # a step; Python ends such threads where they are, and within torch's C++ that aborts
    threading.Thread(target=run, daemon=True).start()
    started.wait(20)

def handler_uses_it(method):
    global loader
    loader = loader_of(method)
    def use():
        next(iter(loader))
        loader.close()
        print("used at exit", file=sys.stderr)
    atexit.register(use)

def in_a_circle(method):
    loader = loader_of(method)
    circle = [loader]
    circle.append(circle)
    loader.circle = circle

def closed_in_del(method):
    global holder
    class Holder:
        def __init__(self, loader): self.loader = loader
        def __del__(self): self.loader.close()
    holder = Holder(loader_of(method))
    next(iter(holder.loader))

def raises(method):
    global loader
    loader = loader_of(method)
    sys.exit(4)

def trainer(case, method, told, folder):
    os.dup2(os.open(told, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
    warnings.simplefilter("default", ResourceWarning)
    (folder / "begins").touch()
    case(method)

if __name__ == "__main__":
    orphans.be_nursery()
    cases = [held_open, daemon_iterates, handler_uses_it, in_a_circle, closed_in_del, raises]
    cases = [case for case in cases if case.__name__ in sys.argv[1:]]
    for number, case in enumerate(cases):
        method = orphans.METHODS[number % 3]
        outcome = orphans.outlived(partial(trainer, case, method, "orphans-said"), 1, lambda pid: None)
        print(json.dumps([case.__name__, *outcome, pathlib.Path("orphans-said").read_text()]), flush=True)
"""


CODES = {"held_open": 0, "closed_in_del": 0, "raises": 4, "daemon_iterates": 0, "handler_uses_it": 0, "in_a_circle": 0}


@pytest.mark.parametrize("count", [2, slow(len(CODES))])
def test_c10_an_interpreter_ends_with_a_loader_open_in_any_way(count: int, tmp_path: Path):
    codes = dict(list(CODES.items())[:count])
    told = {case: rest for case, *rest in map(json.loads, run_warm(tmp_path, AT_EXIT, *codes).splitlines())}
    assert {case: code for case, (_, code, _) in told.items()} == codes
    for case in {"held_open", "in_a_circle", "raises"} & codes.keys():  # a daemon thread's stack is never taken down
        assert "was not closed" in told[case][2], case
    for case, (seconds, _, said) in told.items():
        assert seconds < 10, case  # to reach: 1 s, and what the script itself takes
        strange = [line for line in said.splitlines() if "ResourceWarning" not in line and line != "used at exit"]
        assert not strange, f"{case}: {said}"


def pictures(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """What there was during so many cycles, in a process of its own."""
    return told_by("-m", "tests.fault.cycles", str(count), "--seed", str(seed))


def grown(taken: list[dict[str, Any]]) -> dict[str, list[int]]:
    """What was not the same all the time, of what must be."""
    kinds = ("descriptors", "threads", "children")
    return {kind: seen for kind in kinds if len(set(seen := [one[kind] for one in taken])) > 1}


@pytest.mark.parametrize("count", [slow(20), slow(200)])
def test_c11_cycles_most_with_a_fault_leave_nothing(count: int):
    said = warm_python("-m", "tests.fault.cycles", str(count), "--seed", "1")
    taken = list(map(json.loads, said.splitlines()))
    assert taken[-1]["cycles"] == count
    assert not grown(taken)
    assert grown([*taken, {**taken[-1], "descriptors": taken[-1]["descriptors"] + 1}])  # it can be seen


CYCLES = """
import sys
from tests.datasets import Numbers
from tests.loaders import started

for _ in range(5):
    with started(Numbers, {}, start_method=sys.argv[1]) as loader:
        list(loader)
print("done", flush=True)
sys.stdin.read()
"""
ADOPTS = """
import ctypes, os, subprocess, sys
from pathlib import Path

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans of ours become our children; as many a first process, we never wait
command = [sys.executable, "-c", sys.argv[2], sys.argv[1]]
trainer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert trainer.stdout.readline() == b"done\\n"
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
print(len(children) - 1)
trainer.communicate()
"""


@start_methods
def test_c11_nothing_is_left_to_the_first_process_of_a_container(method: str, tmp_path: Path):
    assert run_script(tmp_path, ADOPTS, method, CYCLES) == "0\n"


@pytest.mark.soak
@pytest.mark.timeout(1600)
def test_c11_soak_cycles():
    soak = Soak("cycles", "loaders started and closed, most with a fault: what is left, the slope of memory", seed=2)
    taken = []
    for one in pictures(10_000, soak.seed):
        taken.append(one)
        soak.progress(f"{one['cycles']} cycles")
        if soak.seconds > 1500:
            break
    late = taken[len(taken) // 2 :]
    slope = statistics.linear_regression([one["cycles"] for one in late], [one["private_nbytes"] for one in late]).slope
    soak.keep(
        cycles=taken[-1]["cycles"],
        grown=grown(taken),
        slope_bytes_per_cycle=round(slope, 1),
        private_nbytes=[one["private_nbytes"] for one in taken],
    )
    assert not grown(taken)
    assert slope < 1024
    assert taken[-1]["cycles"] == 10_000
