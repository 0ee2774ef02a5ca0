"""Rows D1, D2, D3 and D6 of the faults: a small /dev/shm, little memory, and processes that may not have more.

Each needs a process whose surroundings are its own: a mount namespace, a control group, a limit.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from swift_loader import DataError, NoRoom
from swift_loader.host import cgroup
from swift_loader.wire.slot import Slot
from tests import cgroups
from tests.fault.oracle import World
from tests.fault.worlds import in_the_other_worlds
from tests.large_datasets import Hungry, Large, few_addresses
from tests.loaders import started
from tests.slow import slow
from tests.watching import ROOT, warm_python

MB = 1 << 20

IN_SMALL_SHARED_MEMORY = """
import errno, os, sys
from tests.large_datasets import Large
from tests.fault.oracle import WORLDS, differences, faultless, record
from tests.loaders import started

def fill(step):  # as another process would
    if step == 1:
        with open("/dev/shm/another", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError as error:
                assert error.errno == errno.ENOSPC

assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 8 << 20
expected = faultless(dataset=Large, count=24, batch_size=4)
assert len(expected) == 6
for world in sorted(WORLDS, key=lambda world: world.method)[:: 1 if "all" in sys.argv else 2]:
    def consume():
        with started(Large, {"count": 24}, **{**world.settings, "batch_size": 4}) as loader:
            return record(loader, meanwhile=fill)
    assert not differences(world.run(consume), expected), world
    assert os.listdir("/dev/shm") == ["another"]
    os.unlink("/dev/shm/another")
    print(world)
"""


@pytest.mark.parametrize("worlds", ["some", pytest.param("all", marks=pytest.mark.soak)])
def test_d1_d2_a_small_shared_memory_that_another_fills_changes_nothing(tmp_path: Path, worlds: str):
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here (unshare -m): it takes root")
    told = warm_python("-c", IN_SMALL_SHARED_MEMORY, worlds, mounts="mount -t tmpfs -o size=8m tmpfs /dev/shm")
    assert told.splitlines()[-1].startswith("spawn")


IN_A_GROUP = """
import gc, json, os, sys, warnings
from pathlib import Path
import torch
from swift_loader import NoRoom
from tests import cgroups
from tests.large_datasets import Large
from tests.fault.oracle import differences, faultless, record
from tests.loaders import started

group, method = Path(sys.argv[1]), sys.argv[2]
(group / "cgroup.procs").write_text(str(os.getpid()))
budget, told = 160 << 20, []
expected = faultless(dataset=Large, count=96, batch_size=4)

def run(limit, **settings):
    cgroups.limit_file(group).write_text(str(limit))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with started(Large, {"count": 96}, start_method=method, **{"batch_size": 4, **settings}) as loader:
                wrong = differences(record(loader), expected)
        except NoRoom as error:
            wrong = str(error)
    told.append({"wrong": wrong, "warned": [str(one.message) for one in warned], "kills": cgroups.kills(group)})

def used():  # without pages of files, which are whoever's who was the first to read them
    counts = dict(line.rsplit(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
    anonymous = counts.get("total_rss") or counts["anon"]  # in version 2 with those below, and with slots apart
    return int(anonymous) + int(counts.get("total_shmem") or counts.get("shmem") or 0)

run(8 << 30, memory_budget=budget)
gc.collect()
need = used() + (40 << 20) + budget  # what stays, a fork server with two workers, and slots
run(need + (50 << 20), memory_budget=budget)
run(need - (50 << 20), memory_budget=budget)
run(need - (50 << 20))
run(need - budget + (24 << 20), memory_budget=budget, batch_size=24)  # 72 MB
print(json.dumps(told))
"""


@pytest.mark.parametrize("method", [slow("forkserver"), pytest.param("spawn", marks=pytest.mark.soak)])
def test_d3_with_little_memory_left_there_are_fewer_slots_or_an_error_and_nobody_is_killed(tmp_path: Path, method: str):
    script = tmp_path / "script.py"
    script.write_text(IN_A_GROUP)
    with cgroups.memory_group("d3") as group:
        unlimited, enough, short, short_by_default, none = json.loads(
            _run([sys.executable, str(script), str(group), method]).splitlines()[-1]
        )
    assert unlimited == enough == {"wrong": [], "warned": [], "kills": 0}
    assert short["wrong"] == []
    assert "memory_budget=167,772,160 is more than the" in short["warned"][0]
    assert "limit is that of the job's control group" in short["warned"][0]
    assert short_by_default["wrong"] == []
    assert "no memory for a batch of" in none["wrong"] or "max_batch_nbytes" in none["wrong"]
    assert [run["kills"] for run in (short, short_by_default, none)] == [0, 0, 0]


@pytest.mark.parametrize("version", [1, 2])
def test_d3_the_tightest_group_counts_and_pages_of_files_are_no_loss(tmp_path: Path, version: int):
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    inner = mount / "job" / "task"
    inner.mkdir(parents=True)
    proc.mkdir()
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version == 1 else ("memory.max", "memory.current")
    unlimited = str((1 << 63) - 4096) if version == 1 else "max"
    total = "total_" if version == 1 else ""
    for folder, limit, used in ((mount, unlimited, 900), (inner.parent, 500, 400), (inner, unlimited, 300)):
        (folder / names[0]).write_text(f"{limit}\n")
        (folder / names[1]).write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"{total}inactive_file 100\n{total}active_file 20\nanon 180\n")
    kind = "cgroup" if version == 1 else "cgroup2"
    (proc / "cgroup").write_text("4:memory:/box/job/task\n0::/\n" if version == 1 else "0::/box/job/task\n")
    (proc / "mountinfo").write_text(f"32 31 0:29 /box {mount} rw - {kind} {kind} rw,memory\n")
    found = cgroup.folders("memory", proc)
    assert found == [inner, inner.parent, mount]
    assert cgroup.free_memory(found) == 500 - 400 + 120
    assert cgroup.free_memory([inner]) is None
    assert cgroup.free_memory([tmp_path]) is None
    assert cgroup.folders("memory", tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": "350000 100000"}, 3.5),
        ({"cpu.max": "max 100000"}, None),
        ({}, None),
    ],
)
def test_d3_the_quota_of_cores_is_read_too(tmp_path: Path, files: dict[str, str], cores: float | None):
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    assert cgroup.core_quota([tmp_path]) == cores


@in_the_other_worlds
def test_d6_a_worker_without_memory_names_the_sample_and_what_it_may_have(world: World):
    how = "array" if world.workers == 4 else "bytes"
    settings = {**world.settings, "shuffle": False, "worker_init": few_addresses}

    def consume() -> tuple[str, type]:
        with started(Hungry, {"how": how}, **settings) as loader:
            iterator = iter(loader)
            next(iterator)
            with pytest.raises(
                DataError, match=r"sample 13 raised .*MemoryError: .*MB it may have \(ulimit -v\)"
            ) as caught:
                next(iterator)
            assert len(list(iterator)) == 2  # the loader is as usable as before
        return str(caught.value), type(caught.value.__cause__)

    text, cause = world.run(consume)
    assert how == "bytes" or "1.00 GiB" in text
    assert issubclass(cause, MemoryError)


def test_d6_a_slot_that_cannot_be_made_is_an_error_that_names_its_size():
    settings = {"worker_init": few_addresses, "batch_size": 12, "memory_budget": 8 << 30, "timeout_s": 30.0}
    with (
        pytest.raises(NoRoom, match=r"no memory for a batch of 603,\d+,\d+ bytes: .*ulimit -v.*epoch 0, step 0"),
        started(Large, {"nbytes": 48 * MB}, **settings),
    ):
        pass


def test_d6_no_descriptor_is_left_of_a_slot_that_could_not_be_made():
    before = os.listdir("/proc/self/fd")
    with pytest.raises(NoRoom, match="no memory for a batch of"):
        Slot.create(1 << 45)
    assert os.listdir("/proc/self/fd") == before


IN_A_SANDBOX = """
import ctypes, struct
from swift_loader import ConfigError
from swift_loader.cli.facts import gather
from tests.fault.oracle import differences, faultless, record, Traced
from tests.loaders import started

MEMFD_CREATE, FCNTL, F_ADD_SEALS = 319, 72, 1033
libc = ctypes.CDLL(None, use_errno=True)

def forbid(number, argument=None):  # what a container's seccomp profile does
    load, equal, done = 0x20, 0x15, 0x06
    checks = [(load, 0, 0, 0), (equal, 0, 3 if argument else 1, number)]
    checks += [(load, 0, 0, 24), (equal, 0, 1, argument)] if argument else []
    code = [*checks, (done, 0, 0, 0x00050001), (done, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *line) for line in code)
    buffer = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(header)) == 0

forbid(FCNTL, F_ADD_SEALS)
assert not gather().seals
with started(Traced) as loader:
    assert not differences(record(loader), faultless())
forbid(MEMFD_CREATE)
print(gather().memfd_refusal)
try:
    with started(Traced):
        pass
except ConfigError as error:
    print(error)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter names system calls by their numbers on x86_64")
def test_d16_a_sandbox_without_seals_is_enough_and_one_without_memory_files_is_named():
    told = warm_python("-c", IN_A_SANDBOX).splitlines()
    assert told[0] == "Operation not permitted"
    assert "refuses files in memory (memfd_create: Operation not permitted)" in told[1]
    assert "seccomp" in told[1]
    assert "worker_per_consumer=0" in told[1]


def _run(command: list[str]) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
