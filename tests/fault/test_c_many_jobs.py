"""Rows C12, C13, C17 and C19 of the faults: jobs at the same time, after each other, under a jumping clock, starved."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.fault.oracle import World, differences, faultless, record, traced
from tests.loaders import started
from tests.slow import slow
from tests.traced import Traced
from tests.watching import ROOT, begin_warm, run_warm, until

EIGHT = """
import json, os, sys, threading, time
import torch
from tests.fault.oracle import World, differences, faultless, record, traced

def job(number, start_s):
    while time.monotonic() < start_s:
        time.sleep(0.001)
    method = ("forkserver", "spawn", "fork")[number % 3]
    with traced(World(method, 1, in_thread=False), logger="logs/run", benchmark_file="figures.jsonl",
                trace_file="trace.json") as loader:
        return differences(record(loader), faultless())

start_s = time.monotonic() + 0.3
pids = []
for number in range(8):
    pid = os.fork()
    if pid == 0:
        found = job(number, start_s)
        if found:
            print(number, found, flush=True)
        os._exit(0)
    pids.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
"""


def test_c12_eight_jobs_in_the_same_second_with_the_same_files_do_not_clash(tmp_path: Path):
    assert run_warm(tmp_path, EIGHT) == f"{[0] * 8}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.jsonl", "logs", "script.py", "trace.json"]


def test_c13_a_start_after_a_crash_works_and_touches_nothing_of_others(tmp_path: Path):
    """Left behind are half-written files under our names; beside them lies what is others', some of it in use."""
    for name in ("run-0.log", "figures.jsonl", "trace.json"):
        (tmp_path / name).write_text('{"half": ', encoding="utf-8")
    names = ("run-1.log", "run-0.log.lock", "figures.jsonl.tmp", "swift-slot", "trace-1.json")
    others = [tmp_path / name for name in names]
    for path in others:
        path.write_text("theirs", encoding="utf-8")
        if os.geteuid() == 0:
            os.chown(path, 12345, 12345)
    stamps = {path: path.stat().st_mtime_ns for path in others}
    script = tmp_path / "living"
    script.mkdir()
    with begin_warm(script, LIVING, str(tmp_path / "run")) as living:
        assert living.readline() == "lives\n"
        settings = {
            "logger": str(tmp_path / "run"),
            "benchmark_file": str(tmp_path / "figures.jsonl"),
            "trace_file": str(tmp_path / "trace.json"),
        }
        with traced(World("forkserver", 2, in_thread=False), **settings) as loader:
            assert not differences(record(loader), faultless())
        (script / "go on").touch()
        out, err = living.communicate(timeout=100)
    assert (out, err) == ("lives\n[]\n", "")
    assert {path: path.stat().st_mtime_ns for path in others} == stamps
    assert {path.read_text(encoding="utf-8") for path in others} == {"theirs"}
    json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))


LIVING = """
import pathlib, sys
from tests.watching import until
from tests.fault.oracle import World, delivered, differences, faultless, traced

with traced(World("forkserver", 1, in_thread=False), logger=sys.argv[1]) as loader:
    iterator = iter(loader)
    found = [delivered(0, 0, next(iterator))]
    print("lives", flush=True)
    until((pathlib.Path.cwd() / "go on").exists)
    found += [delivered(0, 1 + step, batch) for step, batch in enumerate(iterator)]
    print(differences(found, faultless()))
"""

#: Where the clock on the wall may be read: in what people read.
WALL = ("telemetry/",)
WALL_CLOCKS = {
    ("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"),
}  # fmt: skip


def _wall_clocks(tree: ast.AST) -> list[int]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            of = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (of, node.attr) in WALL_CLOCKS:
                found.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [node.lineno for name in node.names if name.name in ("time", "time_ns")]
    return found


def test_c17_only_texts_for_people_read_the_clock_on_the_wall():
    package = ROOT / "swift_loader"
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        if not name.startswith(WALL):
            assert not _wall_clocks(ast.parse(path.read_text(encoding="utf-8"))), name
    assert _wall_clocks(ast.parse("import time\ntime.time()"))
    assert _wall_clocks(ast.parse("from time import time"))
    assert _wall_clocks(ast.parse("datetime.datetime.now()"))


JUMPS = """
import itertools, time, random
import torch
from tests.datasets import Hangs, Slow
from tests.fault.oracle import World, differences, faultless, record, traced

def jump(info=None):
    honest, jumps = time.time, itertools.cycle((0, 3600, -3600, 7200))
    time.time = lambda: honest() + next(jumps)
    honest_ns = time.time_ns
    time.time_ns = lambda: honest_ns() + next(jumps) * 10**9

jump()
for method in ("forkserver", "spawn", "fork"):
    with traced(World(method, 2, in_thread=False), worker_init=jump, timeout_s=5.0, logger="logs/run") as loader:
        found = record(loader, epochs=2, meanwhile=lambda step: time.time())
        print(differences(found, faultless(epochs=2)), loader.statistics()["epoch"])
"""


def test_c17_a_clock_that_jumps_by_an_hour_changes_nothing(tmp_path: Path):
    assert run_warm(tmp_path, JUMPS, PYTHONWARNINGS="error") == "[] 1\n" * 3


@contextmanager
def _starving(pids: list[int]) -> Iterator[None]:
    """Eight busy loops, and these processes at the very back behind them."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with ExitStack() as stack:
        for _ in range(8):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        for pid in pids:
            os.setpriority(os.PRIO_PROCESS, pid, 19)
        try:
            yield
        finally:
            for pid in pids:
                os.setpriority(os.PRIO_PROCESS, pid, before)


@pytest.mark.skipif(os.geteuid() != 0, reason="a process that has made itself nice needs root to undo it")
@pytest.mark.parametrize("count", [64, slow(240)])
def test_c19_starved_of_the_processor_no_worker_is_taken_for_dead(count: int):
    expected = faultless(count=count)
    settings = World("forkserver", 4, in_thread=False).settings
    with started(Traced, {"count": count}, **settings) as loader:
        pids = until(lambda: pids if len(pids := loader.worker_pids) == 4 else None)
        with _starving([os.getpid(), *pids]):
            found = record(loader)
        assert loader.worker_pids == pids  # nobody was replaced
    assert not differences(found, expected)
