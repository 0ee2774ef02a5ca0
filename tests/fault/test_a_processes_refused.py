"""Rows A18 and A21 of the faults: the system refuses another process, or the fork server is killed."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from pathlib import Path

import pytest

from tests.fault.oracle import World, differences, faultless, record, traced
from tests.other_users import run_apart
from tests.slow import slow
from tests.watching import is_gone, living, run_warm, until, workers

AT_START = """
import json, os, resource, sys, time
import torch
from swift_loader import SwiftLoader, WorkerStartFailed
from tests.datasets import Slow

def limited(number, method, limit):
    os.setgid(65534)
    os.setuid(54400 + number)  # nobody else's: all processes and threads of a user count
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, 4096))
    begun = time.monotonic()
    try:
        SwiftLoader(Slow, {"count": 64}, 4, 1, 4, start_method=method).start(0)
    except WorkerStartFailed as error:
        print(json.dumps([time.monotonic() - begun, str(error)]), flush=True)

# A trainer and its five threads are six, a server is one more, and a copy of the trainer has a twin.
# Below the last limit not even these can be.
for number, (method, limit) in enumerate([("forkserver", 7), ("spawn", 6), ("fork", 8), ("forkserver", 3)]):
    if os.fork() == 0:
        limited(number, method, limit)
        os._exit(0)
    os.wait()
"""


def test_a18_at_the_limit_of_processes_the_start_says_which_limit():
    told = [json.loads(line) for line in run_apart(AT_START).splitlines()]
    refused = ["worker process", "worker process", "worker process", "thread"]
    for (seconds, text), what, limit in zip(told, refused, [7, 6, 8, 3], strict=True):
        assert f"cannot start a {what}: EAGAIN" in text
        assert f"is {limit} (ulimit -u)" in text
        assert "worker_per_consumer" in text
        assert seconds < 10  # to reach: 1 s


LATER = """
import json, os, resource, warnings
import psutil
from tests.datasets import Slow
from tests.loaders import started
from tests.watching import flat, until, workers

os.setgid(65534)
os.setuid(54404)
with started(Slow, {"count": 240, "seconds": 0.01}, shuffle=False, data_queue_size=1, message_queue_size=1) as loader:
    iterator = iter(loader)
    found = next(iterator).tolist()
    victim, other = until(lambda: workers() if len(workers()) == 2 else None)
    server = victim.ppid()
    resource.prlimit(server, resource.RLIMIT_NPROC, (1, 4096))
    victim.kill()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found += flat(iterator)
        left = [one.pid for one in workers()] == [other.pid]
    resource.prlimit(server, resource.RLIMIT_NPROC, (4096, 4096))
    until(lambda: len(workers()) == 2, "the worker that was missing")
    print(json.dumps([found == list(range(240)), left, sorted({str(one.message) for one in told})]))
"""


def test_a18_a_worker_that_cannot_be_replaced_is_told_of_and_the_others_go_on():
    is_exact, is_left_alone, told = json.loads(run_apart(LATER))
    assert is_exact
    assert is_left_alone
    assert len(told) == 1
    assert "could not be started again: cannot start a worker process: EAGAIN" in told[0]


ALONE, OF_FOUR = World("forkserver", 1, in_thread=False), World("forkserver", 4, in_thread=True)


@pytest.mark.parametrize(
    ("world", "is_asked"),
    [(ALONE, False), slow(ALONE, True), slow(OF_FOUR, False), (OF_FOUR, True)],
    ids=str,
)
def test_a21_a_killed_fork_server_is_started_again_and_living_workers_go_on(world: World, is_asked: bool):
    """Killed while it is idle; or stopped, asked for a replacement, and killed before it can answer."""

    def run() -> None:
        with traced(world) as loader:
            iterator = iter(loader)
            alive = until(lambda: workers() if len(workers()) == world.workers else None)
            server = alive[0].parent()
            assert server is not None
            if is_asked:
                server.send_signal(signal.SIGSTOP)
                alive[0].kill()
                until(_is_asked_for, "the request")
            server.kill()
            until(lambda: is_gone(server))
            spared = alive[1:] if is_asked else alive
            found.extend(record(iterator))
            assert all(one.is_running() for one in spared)
            if is_asked:
                until(lambda: len(living(loader.worker_pids)) == world.workers, "the replacement")

    found: list = []
    world.run(run)
    assert not differences(found, faultless())


def _is_asked_for() -> bool:
    """Whether a thread of this process waits for the fork server's answer."""
    stacks = map(traceback.walk_stack, sys._current_frames().values())
    return any(frame.f_code.co_qualname == "Server.ask" for stack in stacks for frame, _ in stack)


FOSTERS = """
import os, sys
from pathlib import Path
import torch
from swift_loader.engines.nursery import shared
from tests.fault import orphans
from tests.fault.oracle import World, delivered, differences, faultless, traced
from tests.watching import until, workers

orphans.be_nursery()
with traced(World("forkserver", 2, in_thread=False)) as loader:
    iterator = iter(loader)
    found = [delivered(0, 0, next(iterator))]
    family = until(lambda: workers() if len(workers()) == 2 else None)
    family[0].parent().kill()
    until(lambda: all(one.ppid() == os.getpid() for one in family))
    family[0].kill()
    found += [delivered(0, 1 + step, batch) for step, batch in enumerate(iterator)]
shared.end()
print(differences(found, faultless()), until(lambda: not orphans.children(), "the end of all, corpses too"))
"""


UNKNOWN = """
import os, signal
import torch
from swift_loader.engines.lifeline import is_readable
from swift_loader.engines.nursery import shared
from swift_loader.errors import LoaderClosed
from tests.fault import orphans
from tests.fault.oracle import World, traced
from tests.watching import until

orphans.be_nursery()
with traced(World("forkserver", 2, in_thread=False)) as loader:
    next(iter(loader))
server = shared._server
os.kill(server.pid, signal.SIGSTOP)
try:
    server.branch(lambda: True)
except LoaderClosed:
    os.kill(server.pid, signal.SIGCONT)
    until(lambda: is_readable(server._channel.fileno(), 0.0))
    shared.end()
    print(until(lambda: not orphans.children(), "the end of all, corpses too"))
"""


def test_a21_it_buries_those_too_whom_nobody_waited_for(tmp_path: Path):
    """A loader that is closed while a worker starts is never told which process that was."""
    assert run_warm(tmp_path, UNKNOWN) == "True\n"


def test_a21_a_trainer_that_inherits_orphans_buries_them(tmp_path: Path):
    """As the first process of a container does: workers whose fork server was killed become its own children."""
    assert run_warm(tmp_path, FOSTERS) == "[] True\n"
