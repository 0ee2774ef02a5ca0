"""Row D4 of the faults: a low limit of open files. And what a loader does not need to work: names, folders, /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.oracle import Traced
from tests.fault.worlds import in_the_other_worlds
from tests.loaders import started
from tests.other_users import run_apart
from tests.watching import run_warm, settled, until, workers

WITH_FEW_FILES = """
import os, re, resource, sys, traceback
from swift_loader import ConfigError
from tests.fault.oracle import WORLDS, differences, faultless, record, traced

world = next(world for world in WORLDS if str(world) == "forkserver-4-thread")
expected = faultless(epochs=2)

def epochs(hard, soft=64):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with traced(world, data_queue_size=10) as loader:
        assert not differences(record(loader, epochs=2), expected)
        kept = list(loader)  # who keeps all of them takes no descriptors either
        assert len({step.data_ptr() for batch in kept for step in batch.values()}) == 3 * len(kept)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)  # the soft one was raised

def apart(action):  # in a process of its own, since a limit cannot be raised again
    reads, writes = os.pipe()
    if os.fork() == 0:
        try:
            text = action() or "good"
        except ConfigError as error:
            text = str(error)
        except BaseException:
            text = traceback.format_exc()
        os.write(writes, text.encode())
        os._exit(0)
    os.close(writes)
    with open(reads) as told:
        text = told.read()
    os.wait()
    return text

assert apart(lambda: epochs(4096)) == "good"
text = apart(lambda: epochs(64))
assert "it is 64" in text and "ulimit -Hn" in text, text
needed = int(re.search(r"need a limit of (\\d+) open files", text)[1])
assert "open files" in apart(lambda: epochs(needed - 4))
told = apart(lambda: epochs(needed))  # the number is the right one
assert told == "good", told
print(needed)
"""


def test_d4_a_low_limit_of_open_files_is_raised_else_the_number_needed_is_named(tmp_path: Path):
    assert 64 < int(run_warm(tmp_path, WITH_FEW_FILES)) < 128


@in_the_other_worlds
def test_d4_no_descriptor_is_opened_for_a_batch(world):
    def consume() -> None:
        with started(Traced, {"count": 2000, "augment": False}, **world.settings) as loader:
            list(loader)
            until(lambda: _have_arrived(world.workers), "the last worker")
            before = settled(_beside_slots)
            for _ in range(4):  # 1,000 batches
                assert sum(1 for _ in loader) == 250
            until(lambda: _beside_slots() == before, f"open files beside those of slots as before, {before}")
            slots = sum(value for name, value in loader.statistics().items() if name.startswith("slots_"))
            assert _count_slot_files() <= 2 * slots

    world.run(consume)


def _have_arrived(count: int) -> bool:
    here = workers()
    return len(here) == count and all(any("swift-control" in link for link in _links(one.pid)) for one in here)


def _beside_slots() -> list[int]:
    """How many files this process and its workers have open that are not slots: their number depends on chance."""
    pids = [os.getpid(), *sorted(worker.pid for worker in workers())]
    return [sum(not _is_slot(link) for link in _links(pid)) for pid in pids]


def _count_slot_files() -> int:
    return sum(_is_slot(link) for link in _links(os.getpid()))


def _is_slot(link: str) -> bool:
    return link.startswith("/memfd:swift-slot")


def _links(pid: int) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            yield os.readlink(f"/proc/{pid}/fd/{name}")


IN_A_BARE_PLACE = """
import os, sys
os.setgroups([]), os.setgid(54321), os.setuid(54321)
from tests.datasets import Records
from tests.loaders import stream
expected = stream(Records, {"count": 32}, worker_per_consumer=0)
assert stream(Records, {"count": 32}) == expected
print(os.getuid())
"""
HIDDEN = "mount -t proc -o hidepid=2 proc /proc"
EMPTY = " && ".join(f"mount -t tmpfs tmpfs {folder}" for folder in ("/tmp", "/dev/shm"))
READ_ONLY = EMPTY.replace("-t tmpfs tmpfs", "-o remount,ro")


@pytest.mark.parametrize(
    ("mounts", "seal"),
    [("true", "umount -l /proc"), (f"{HIDDEN} && {EMPTY}", READ_ONLY)],
    ids=["no /proc", "read-only"],
)
def test_d15_a_user_without_a_name_a_home_and_a_temporary_folder_trains_all_the_same(mounts: str, seal: str):
    """Uid 54321 has no entry in passwd; the locale is C; TMPDIR is not there; and then one thing more."""
    assert run_apart(IN_A_BARE_PLACE, mounts, seal, LC_ALL="C", TMPDIR="/not/there", HOME="") == "54321\n"
