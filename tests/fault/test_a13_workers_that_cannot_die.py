"""Row A13 of the faults: workers that wait in the kernel, where no signal reaches them.

Of a file system that never answers, and (a stand-in, for machines without FUSE) in a frozen control group.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swift_loader import PoisonedTicket
from tests.datasets import Numbers, calls
from tests.deadly_datasets import Stuck
from tests.fault.hanging import StartsOthers
from tests.fault.oracle import ALL_WORLDS, World
from tests.loaders import made, started
from tests.unkillable import FREEZER, freeze, frozen_group, silent_file
from tests.watching import flat, living, until, workers

NAMED = r"swift-worker-c0w\d \(pid \d+\) was killed and is still there: .*no signal ends"
needs_fuse = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK),
    reason="needs root and /dev/fuse: who reads what a file system has taken and never answers cannot die",
)
needs_freezer = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access(FREEZER, os.W_OK),
    reason="needs root and the freezer of control groups version 1: a frozen process does not die of a SIGKILL",
)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


@contextmanager
def told(pattern: str) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    assert [one for one in found if re.search(pattern, str(one.message))], found


@contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def timed(action: Callable[[], Any]) -> float:
    begun = time.monotonic()
    action()
    return time.monotonic() - begun


def replaced(world: World, folder: Path) -> None:
    """One that reads a dead file is replaced, and another is there at the end, when its loader is closed."""
    with silent_file(folder) as file:
        notes = folder.parent
        kwargs = {"path": str(file), "folder": str(notes), "times": 1}
        loader = made(Stuck, kwargs, **{**world.settings, "shuffle": False, "timeout_s": 1.0})
        with loader, told(NAMED):
            loader.start(0)
            assert flat(loader) == list(range(32))
            stuck, *_ = [call.pid for call in calls(notes, "reads")]
            assert _state(stuck) == "D"
            assert loader.statistics()["slots_lost"] >= 1  # it may still write there
            assert flat(loader) == list(range(32))
            assert timed(loader.close) < 10  # to reach: 1 s; nobody is waited for
        assert _state(stuck) == "D"
    until(lambda: _state(stuck) in ("gone", "Z"))
    with started(Numbers, start_method=world.method):
        pass  # the next loader lets go of the numbers of those that others left behind


@needs_fuse
def test_a13_a_worker_in_a_dead_file_system_is_replaced_and_not_waited_for(tmp_path: Path):
    (folder := tmp_path / "mounted").mkdir()
    replaced(World("spawn", 4, in_thread=False), folder)


@needs_fuse
@pytest.mark.soak
@pytest.mark.parametrize("world", [world for world in ALL_WORLDS if not world.in_thread], ids=str)
def test_a13_in_every_world(world: World, tmp_path: Path):
    (folder := tmp_path / "mounted").mkdir()
    replaced(world, folder)


@needs_fuse
def test_a13_closing_names_one_that_cannot_die_and_ends_all_the_same(tmp_path: Path):
    (folder := tmp_path / "mounted").mkdir()
    with silent_file(folder) as file:
        with started(Stuck, {"path": str(file), "folder": str(tmp_path)}, shuffle=False) as loader:
            next(iter(loader))
            stuck, *_ = until(lambda: [call.pid for call in calls(tmp_path, "reads")])
            until(lambda: _state(stuck) in "SD")
            with told(NAMED):
                assert timed(loader.close) < 50  # to reach: 5 s
        assert _state(stuck) == "D"
    until(lambda: _state(stuck) in ("gone", "Z"))


@needs_fuse
@pytest.mark.soak
def test_a13_a_sample_whose_file_never_comes_is_named_in_the_end(tmp_path: Path):
    (folder := tmp_path / "mounted").mkdir()
    with silent_file(folder) as file, quietly():
        kwargs = {"path": str(file), "folder": str(tmp_path)}
        settings = {"shuffle": False, "timeout_s": 0.5, "max_attempts": 1}
        with started(Stuck, kwargs, **settings) as loader:
            iterator = iter(loader)
            next(iterator)
            with pytest.raises(PoisonedTicket, match=r"made no progress.*sample 13, and cannot be ended"):
                next(iterator)
            assert next(iterator).tolist() == list(range(16, 24))


@needs_freezer
def test_a13_a_frozen_worker_is_replaced_and_when_it_thaws_it_changes_nothing(tmp_path: Path):
    settings = {"data_queue_size": 1, "message_queue_size": 1, "max_buffer_size": 0, "timeout_s": 1.0}
    with (
        frozen_group(f"swift-tests-{os.getpid()}") as group,
        quietly(),
        started(Numbers, {"count": 320}, shuffle=False, **settings) as loader,
    ):
        iterator = iter(loader)
        found = next(iterator).tolist()
        frozen = until(lambda: workers() if len(workers()) == 2 else None)[0].pid
        freeze(group, frozen)
        found += flat(iterator)
        assert found == list(range(320))
        (group / "freezer.state").write_text("THAWED")
        until(lambda: _state(frozen) in ("gone", "Z"))
        assert flat(loader) == list(range(320))


@needs_freezer
def test_a13_what_a_worker_has_started_ends_when_that_is_let_go_of(tmp_path: Path):
    settings = {"data_queue_size": 1, "message_queue_size": 1, "max_buffer_size": 0, "timeout_s": 0.5}
    kwargs = {"folder": str(tmp_path), "count": 320, "programs_alone": True}
    with (
        frozen_group(f"swift-tests-{os.getpid()}") as group,
        quietly(),
        started(StartsOthers, kwargs, shuffle=False, **settings) as loader,
    ):
        iterator = iter(loader)
        found = next(iterator).tolist()
        frozen = until(lambda: workers() if len(workers()) == 2 else None)[0].pid
        programs = until(lambda: [call.index for call in calls(tmp_path, "started") if call.pid == frozen])
        freeze(group, frozen)
        found += flat(iterator)
        assert found == list(range(320))
        until(lambda: not living(programs), "the end of its programs")
        assert _state(frozen) not in ("gone", "Z")
