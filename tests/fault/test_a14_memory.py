"""Rows A14 and A15 of the faults: workers that take more memory than there is, at once or little by little."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swift_loader import WorkerStartFailed
from swift_loader.host.cgroup import OomKills
from tests.cgroups import limit_file, memory_group
from tests.deadly_datasets import Leaks
from tests.fault.oracle import World
from tests.fault.worlds import in_some_worlds
from tests.loaders import started
from tests.slow import slow
from tests.watching import begin_warm, until, workers

MB = 1 << 20
SCRIPT = """
import sys, warnings
group, folder, times = sys.argv[1:]
with open(group + '/cgroup.procs', 'w') as procs:
    procs.write('0')
from swift_loader import PoisonedTicket, SwiftLoader
from tests.deadly_datasets import Allocates
warnings.simplefilter('always')
if __name__ == '__main__':
    kwargs = {'folder': folder, 'nbytes': 1 << 30, 'times': int(times)}
    with SwiftLoader(Allocates, kwargs, 8, 1, 1, shuffle=False, max_attempts=2) as loader:
        loader.start(0)
        found, errors = [], []
        iterator = iter(loader)
        for _ in range(4):
            try:
                found += next(iterator).tolist()
            except PoisonedTicket as error:
                print('RAISED', str(error).replace(chr(10), ' '))
        print('FOUND', sorted(found) == list(range(32)), len(found))
"""


@pytest.mark.parametrize("times", [slow(1), 99])
def test_a14_the_kernel_kills_a_worker_and_not_the_trainer_and_that_is_told(times: int, tmp_path: Path):
    (notes := tmp_path / "notes").mkdir()
    with memory_group("a14") as group:
        limit_file(group).write_text(str(600 * MB))
        with begin_warm(tmp_path, SCRIPT, str(group), str(notes), str(times), OMP_NUM_THREADS="1") as process:
            out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    limit = rf"was killed by the kernel \(memory limit of the job {600 * MB:,} bytes, [\d,]+ in use"
    assert re.search(limit + r".*while it fetches sample 13; another takes its place", err), err
    if times == 1:
        assert "FOUND True 32" in out
    else:
        assert re.search(rf"RAISED this batch has killed 2 workers; the last: .* {limit}.*sample 13", out), out
        assert "FOUND False 24" in out


def test_a14_of_trainer_and_worker_the_kernel_takes_the_worker():
    mine = int(Path("/proc/self/oom_score_adj").read_text())
    with started(Leaks, {"count": 64, "nbytes": 1}) as loader:
        next(iter(loader))
        for worker in until(workers):
            assert int(Path(f"/proc/{worker.pid}/oom_score_adj").read_text()) == max(mine, 500)


@pytest.mark.parametrize("version", [1, 2])
def test_a14_one_kill_is_told_once_for_each_that_the_kernel_counts(version: int, tmp_path: Path):
    count, limit, used = {
        1: ("memory.oom_control", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        2: ("memory.events", "memory.max", "memory.current"),
    }[version]
    (tmp_path / limit).write_text("1000000\n")
    (tmp_path / used).write_text("900000\n")
    (tmp_path / count).write_text("oom_kill 4\n")
    kills = OomKills([tmp_path])
    assert kills.can_tell
    assert kills.explain() == ""  # it was somebody else
    (tmp_path / count).write_text("oom_kill 6\n")
    assert [bool(kills.explain()) for _ in range(3)] == [True, True, False]
    (tmp_path / count).write_text("oom_kill 7\n")
    assert "memory limit of the job 1,000,000 bytes, 900,000 in use" in kills.explain()
    assert not OomKills([]).can_tell


LEAK = {"count": 256, "nbytes": MB}


@in_some_worlds
def test_a15_a_worker_that_leaks_is_replaced_between_two_batches(world: World):
    def consume() -> None:
        with started(Leaks, LEAK, max_worker_nbytes=40 * MB, **world.settings) as loader:
            batches = list(loader)
            recycled = loader.statistics()["workers_recycled"]
        pids = {pid for batch in batches for pid in batch["pid"].tolist()}
        assert sorted(i for batch in batches for i in batch["index"].tolist()) == list(range(256))
        # 256 MB in parts of 40, and what comes until it is looked at: every 10 ms, after a batch of 8 MB.
        assert len(pids) > world.workers
        assert recycled >= 2

    world.run(consume)


def test_a15_nothing_is_replaced_without_a_limit_nor_below_it():
    for settings in ({}, {"max_worker_nbytes": 1 << 30}):
        with started(Leaks, LEAK, **settings) as loader:
            pids = {pid for batch in loader for pid in batch["pid"].tolist()}
            assert loader.statistics()["workers_recycled"] == 0
        assert len(pids) <= 2


def test_a15_a_limit_below_what_a_fresh_worker_needs_is_an_error_that_names_both():
    with pytest.raises(WorkerStartFailed) as caught, started(Leaks, {**LEAK, "begun": 100 * MB},
                                                             max_worker_nbytes=50 * MB) as loader:  # fmt: skip
        list(loader)
    taken, most = (int(number.replace(",", "")) for number in re.findall(r"[\d,]{6,}", str(caught.value)))
    assert 100 * MB <= taken < 200 * MB
    assert most == 50 * MB
