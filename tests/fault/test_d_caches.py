"""Rows D7 to D13 of the faults against what is kept: bad disks, meddlers, other users. The stream stays the same.

The warnings are one for each disk; what was kept and is whole is used, and nothing else is.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from swift_loader.reuse import index
from tests.failing_disk import mounting
from tests.kept_datasets import Asked, Large, asked
from tests.loaders import started, stream
from tests.other_users import run_apart
from tests.slow import slow, slow_but
from tests.unit.reuse.stores import flip, opened
from tests.watching import ROOT, kill_one, plain

N = 48
STRANGER = 54322
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="what another user has made can only be faked by root")

ON_BAD_DISKS = """
import json, os, subprocess, warnings
from tests.kept_datasets import Large
from tests.loaders import stream

place = os.environ["PLACE"]

def run(prefix, epochs=2):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = stream(Large, {"folder": place}, epochs=epochs, cache_setting={"prefix": prefix})
    return found, [str(one.message) for one in warned]

expected, told = run(place + "/good/kept")
assert not told, told
subprocess.run(["mount", "-o", "remount,ro", place + "/good"], check=True)
told = {}
for name in ("full", "inodes", "read-only", "good"):
    found, told[name] = run(f"{place}/{name}/kept")
    assert found == expected, name
print(json.dumps(told))
"""


def test_d7_d8_a_disk_that_is_full_or_read_only_costs_one_warning(tmp_path: Path):
    disks = {"full": "size=1m", "inodes": "nr_inodes=2", "read-only": "ro", "good": "size=64m"}
    for name in disks:
        (tmp_path / name).mkdir()
    mounts = " && ".join(f"mount -t tmpfs -o {options} tmpfs {tmp_path / name}" for name, options in disks.items())
    told = json.loads(run_apart(ON_BAD_DISKS, mounts, PLACE=str(tmp_path)))
    why = {
        "full": "nothing more is kept, training goes on: No space left on device; make room on that disk",
        "inodes": "nothing is kept, training goes on: No space left on device; make room on that disk",
        "read-only": "nothing is kept, training goes on: Read-only file system; that disk can only be read",
        "good": "can only be read, so nothing is added to what is kept there",
    }
    for name, words in why.items():
        (text,) = told[name]
        assert text.startswith(f"cache_setting: {tmp_path / name}/kept")
        assert words in text


ON_A_FAILING_DISK = """
import itertools, json, os, warnings
from tests.failing_disk import shut_down
from tests.kept_datasets import Large
from tests.loaders import started, stream
from tests.watching import plain

place, disk = os.environ["PLACE"], os.environ["FAILING"]
when, count = int(os.environ["WHEN"]), int(os.environ["COUNT"])
given = Large, {"folder": place}
expected = stream(*given, epochs=3, cache_setting={"prefix": place + "/calm/kept"})
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    with started(*given, cache_setting={"prefix": disk + "/kept"}, worker_per_consumer=count) as loader:
        batches = (plain(batch) for _ in range(3) for batch in loader)
        found = list(itertools.islice(batches, when))
        shut_down(disk)
        found += batches
assert found == expected
assert stream(*given, epochs=1, cache_setting={"prefix": place + "/calm/kept"}) == expected[: len(expected) // 3]
print(json.dumps([str(one.message) for one in warned]))
"""


@pytest.mark.parametrize(("when", "count"), [slow(2, 0), (2, 2), slow(8, 0), slow(8, 2)])
def test_d8_a_disk_that_fails_while_it_is_used_costs_one_warning(when: int, count: int, tmp_path: Path):
    """Between two batches of the first epoch, in which it is written, and of the second, in which it is read."""
    disk = tmp_path / "disk"
    env = {"PLACE": str(tmp_path), "FAILING": str(disk), "WHEN": str(when), "COUNT": str(count)}
    told = json.loads(run_apart(ON_A_FAILING_DISK, mounting(tmp_path, disk), **env))
    assert len(told) <= max(1, count)  # a worker may have met it writing, and another one reading
    assert told or (count and when == 8)  # copied out of memory, nobody met it
    for text in told:
        assert text.startswith(f"cache_setting: {disk}/kept: nothing ")
        assert text.endswith("training goes on: Input/output error; that disk is failing: name a prefix on another")


ON_A_SMALL_DISK = """
import json, os, warnings
from collections import Counter
from tests.kept_datasets import Large, asked
from tests.loaders import stream

place, disk = os.environ["PLACE"], os.environ["DISK"]
given = Large, {"folder": place, "count": 200}
expected = stream(*given, epochs=2, cache_setting={"prefix": place + "/calm/kept"})
before = len(asked(place))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    assert stream(*given, epochs=2, cache_setting={"prefix": disk + "/kept"}, data_queue_size=1) == expected
times = Counter(asked(place)[before:])
print(json.dumps([[str(one.message) for one in warned], sum(count == 1 for count in times.values())]))
"""


def test_d7_an_ext4_of_8_megabytes_keeps_what_it_can_and_costs_one_warning(tmp_path: Path):
    disk = tmp_path / "disk"
    env = {"PLACE": str(tmp_path), "DISK": str(disk)}
    (text,), asked_once = json.loads(run_apart(ON_A_SMALL_DISK, mounting(tmp_path, disk, megabytes=8), **env))
    assert text.startswith(f"cache_setting: {disk}/kept: nothing more is kept, training goes on: No space left")
    assert 20 < asked_once < 128  # of 200 samples of 64 kB; workers have begun a third epoch, too


def test_d7_a_file_that_may_not_grow_costs_one_warning(tmp_path: Path):
    """As a quota does it."""
    kwargs = {"folder": str(tmp_path)}
    expected = stream(Large, kwargs, epochs=2, cache_setting={"prefix": tmp_path / "a"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        resource.setrlimit(resource.RLIMIT_FSIZE, (9 << 20, before[1]))  # an index has 9 MB, most of them a hole
        try:
            found = stream(Large, kwargs, epochs=2, cache_setting={"prefix": tmp_path / "b"}, worker_per_consumer=0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found == expected
    assert not warned or "File too large; files may not grow larger there (ulimit -f)" in str(warned[0].message)


def _flips(folder: Path) -> None:
    chance = random.Random(3)
    for name, first in (("kept.data", 0), ("kept.index", index.ENTRIES)):
        nbytes = (folder / name).stat().st_size
        for _ in range(300):
            flip(folder / name, chance.randrange(8 * first, 8 * nbytes))


def _replaces(folder: Path) -> None:
    for name in ("kept.index", "kept.data"):
        (folder / "other").write_bytes(os.urandom(100_000))
        (folder / "other").rename(folder / name)


MEDDLERS = {
    "flips bits": _flips,
    "cuts the data": lambda folder: os.truncate(folder / "kept.data", 100_000),
    "cuts the index": lambda folder: os.truncate(folder / "kept.index", 5000),
    "empties both": lambda folder: [os.truncate(folder / name, 0) for name in ("kept.data", "kept.index")],
    "removes all": lambda folder: [path.unlink() for path in folder.iterdir()],
    "replaces them": _replaces,
    "moves the folder": lambda folder: folder.rename(folder.parent / "elsewhere"),
}


#: Without workers and with two, in turns; and where there is time, each with both.
MEDDLED = list(zip(MEDDLERS, itertools.cycle((2, 0)), strict=False))


@pytest.mark.parametrize(("what", "count"), slow_but(itertools.product(MEDDLERS, (0, 2)), MEDDLED.__contains__))
def test_d9_whatever_is_done_to_the_files_in_use_the_stream_is_the_same(what: str, count: int, tmp_path: Path):
    kwargs = {"folder": str(tmp_path)}
    calm, kept = ({"cache_setting": {"prefix": tmp_path / name / "kept"}} for name in ("calm", "k"))
    expected = stream(Asked, kwargs, epochs=4, **calm, worker_per_consumer=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that had to be made anew
        with started(Asked, kwargs, **kept, worker_per_consumer=count) as loader:
            batches = (plain(batch) for _ in range(4) for batch in loader)
            found = list(itertools.islice(batches, 10))
            MEDDLERS[what](tmp_path / "k")
            found += batches
        assert found == expected
        assert stream(Asked, kwargs, 4, **kept, worker_per_consumer=0) == found
    assert stream(Asked, kwargs, 4, **kept, worker_per_consumer=0) == found


def test_d9_a_file_is_cut_all_the_time_and_the_trainer_lives(tmp_path: Path):
    """Also with reading from mappings under way: at worst a worker dies, and another takes its place."""
    kwargs = {"folder": str(tmp_path)}
    expected = stream(Large, kwargs, epochs=6, cache_setting={"prefix": tmp_path / "calm"})
    cutter = subprocess.Popen(
        [sys.executable, "-c", CUTS, str(tmp_path / "kept.data")], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of files that had to be made anew, after they were cut to nothing
            found = stream(Large, kwargs, 6, cache_setting={"prefix": tmp_path / "kept"}, max_attempts=10)
    finally:
        cutter.kill()
        cutter.wait(20)
    assert found == expected


CUTS = """
import contextlib, os, sys, time
while True:
    time.sleep(0.003)
    with contextlib.suppress(OSError):
        os.truncate(sys.argv[1], os.stat(sys.argv[1]).st_size // 2)
"""


def test_d10_two_jobs_at_different_epochs_take_nothing_from_each_other_that_they_need(tmp_path: Path):
    """Nothing is thrown out for room; but a job that is ahead writes newer samples over those of one that is behind."""
    kwargs = {"folder": str(tmp_path)}
    setting = {"update_frequency": 2, "nbytes": 1 << 16}
    alone = stream(Asked, kwargs, epochs=6, cache_setting={"prefix": tmp_path / "a", **setting})
    shared = {"cache_setting": {"prefix": tmp_path / "b", **setting}, "data_queue_size": 1}
    with started(Asked, kwargs, **shared) as ahead, started(Asked, kwargs, **shared) as behind:
        first = [plain(batch) for _ in range(3) for batch in ahead]
        second = []
        for _ in range(3):  # by turns, three epochs apart
            for batch, later in zip(behind, ahead, strict=True):
                second.append(plain(batch))
                first.append(plain(later))
    assert first == alone
    assert second == alone[: len(second)]


LOCKS = """
import sys, time
from pathlib import Path
from tests.unit.reuse.stores import opened
store = opened(Path(sys.argv[1]))
assert store.lock(5)
print("locked", flush=True)
sys.stdin.read()
"""


def test_d11_a_lock_is_free_at_once_when_its_holder_is_killed(tmp_path):
    store = opened(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", LOCKS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with child:
        assert child.stdout.readline() == "locked\n"
        assert store._locks.others_hold(index.LOCK_SAMPLE + 5)
        child.kill()
        child.wait(20)
        # The kernel has closed its files before it says that it has ended: from then on no time passes.
        assert store._locks.take(index.LOCK_SAMPLE + 5, wait_s=0.05)
    store.close()


PLANTS = {
    "symbolic link": lambda path, victim: path.symlink_to(victim),
    "link to nothing": lambda path, victim: path.symlink_to(victim.parent / "made by us"),
    "hard link": lambda path, victim: path.hardlink_to(victim),
    "pipe": lambda path, victim: os.mkfifo(path),
    "file": lambda path, victim: (path.write_text("theirs\n"), path.chmod(0o666)),
    "device": lambda path, victim: os.mknod(path, 0o666 | stat.S_IFBLK, os.makedev(7, 200)),
}


@needs_root
@pytest.mark.parametrize("kind", PLANTS)
def test_d13_what_another_user_has_planted_is_refused_and_his_victims_file_untouched(kind: str, tmp_path: Path):
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    victim.write_text("precious\n")
    shared.mkdir()
    shared.chmod(0o1777)
    kwargs = {"folder": str(tmp_path)}
    expected = stream(Asked, kwargs, 2, cache_setting={"prefix": tmp_path / "good" / "kept"}, worker_per_consumer=0)
    for name in ("kept.lock", "kept.index", "kept.data"):
        path = shared / name
        PLANTS[kind](path, victim)
        if kind != "hard link":  # it is the victim's, as the file is
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            settings = {"cache_setting": {"prefix": shared / "kept"}, "worker_per_consumer": 0}
            assert stream(Asked, kwargs, 2, **settings) == expected
        assert [
            str(one.message).startswith(f"cache_setting: {shared / 'kept'}: nothing is kept") for one in warned
        ] == [True]
        assert victim.read_text() == "precious\n"
        assert not (tmp_path / "made by us").exists()
        assert path.lstat().st_uid == (victim.stat().st_uid if kind == "hard link" else STRANGER)
        path.unlink()
        for left in shared.iterdir():
            left.unlink()


def test_d12_workers_killed_at_any_moment_of_the_first_epoch_leave_a_cache_that_is_right(tmp_path: Path):
    kwargs = {"folder": str(tmp_path), "seconds": 0.001}
    expected = stream(Asked, kwargs, cache_setting={"prefix": tmp_path / "calm"})
    chance, found = random.Random(4), []
    with started(Asked, kwargs, cache_setting={"prefix": tmp_path / "kept"}, max_attempts=30) as loader:
        for batch in loader:
            found.append(plain(batch))
            kill_one(loader.worker_pids, chance.randrange(2))
    assert found == expected
    before = len(asked(tmp_path))
    assert stream(Asked, kwargs, cache_setting={"prefix": tmp_path / "kept"}) == expected
    assert len(asked(tmp_path)) - before <= N
