"""Row A4: a worker, or the server that forks it, is killed at each place where it hands over something."""

from __future__ import annotations

from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from swift_loader import SwiftLoader
from swift_loader.worker.faultpoints import NAME, POINTS
from tests.fault.oracle import ALL_WORLDS, WORLDS, Traced, World, differences, record
from tests.fault.wrapped import Wrapped
from tests.loaders import started
from tests.slow import slow, slow_but

COUNT = 320
#: How often a place is passed before the worker dies there: by then work is under way.
PASSES = {"before-answer": 1, "before-hello": 1, "after-hello": 1, "in-fetch": 21, "rows-written": 1, "new-slot": 1}
#: Parcels are joined only where many orders wait and samples are quick.
MANY = {"data_queue_size": 10, "message_queue_size": 10}


def strike(point: str, world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = PASSES.get(point, 2) + (point == "before-answer" and world.method == "fork")  # the first one is the twin
    monkeypatch.setenv(NAME, f"{point}:{passes}:{folder}")
    joins = "parcels" in point
    kwargs = {"count": 10 * COUNT if joins else COUNT, "augment": not joins}
    settings: dict[str, Any] = {**world.settings, **(MANY if joins else {})}

    def consume() -> None:
        with started(Traced, kwargs, **settings) as loader:
            if point == "before-void":
                leave_until_one_dies(loader, folder / point)
            found = record(loader, 2)
        with started(Traced, kwargs, **{**settings, "worker_per_consumer": 0}) as loader:
            assert not differences(found, record(loader, 2))

    world.run(consume)
    assert (folder / point).exists(), "nobody died: the point was not passed often enough"


def leave_until_one_dies(loader: SwiftLoader, mark: Path) -> None:
    """Orders are taken back only when an epoch is left; how many are still to be made then, the machine decides."""
    for _ in range(1000):
        if mark.exists():
            return
        next(iter(loader))
        loader.set_epoch(0)


def _applies(point: str, world: World) -> bool:
    return point != "before-answer" or world.method != "spawn"  # which has no server


#: Each point in one world, all worlds in turn: those that spawn, and begin with an interpreter, where there is time.
_ROUND, _QUICK = cycle(WORLDS), cycle(world for world in WORLDS if world.method != "spawn")
IN_TURN = [(point, next(world for world in _QUICK if _applies(point, world))) for point in POINTS]
SPAWNED = [(point, next(world for world in _ROUND if _applies(point, world))) for point in POINTS]
SPAWNED = [slow(point, world) for point, world in SPAWNED if world.method == "spawn"]
#: A copy of the trainer that dies as it hands over a worker has a twin, which must not hand over the same one.
IN_TURN += [("before-answer", world) for world in WORLDS if world.method == "fork"]
EVERYWHERE = [pair for pair in product(POINTS, ALL_WORLDS) if _applies(*pair)]

#: One of each that hands over, and of each thing that is; the others are slow rows.
EACH_TIME = ("before-answer", "before-hello", "in-fetch", "new-slot", "after-parcel", "before-void")


@pytest.mark.parametrize(("point", "world"), [*slow_but(IN_TURN, lambda row: row[0] in EACH_TIME), *SPAWNED], ids=str)
def test_a4_a_worker_that_is_killed_at_a_handover_loses_and_doubles_nothing(
    point: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    strike(point, world, tmp_path, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize(("point", "world"), EVERYWHERE, ids=str)
def test_a4_at_every_handover_in_every_world(point: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    strike(point, world, tmp_path, monkeypatch)


def test_a4_a_place_that_nobody_knows_is_an_error_that_names_those_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(NAME, "at-tea:1")
    from swift_loader.worker import faultpoints

    with pytest.raises(ValueError, match=r"at-tea.*after-hello"):
        faultpoints.arm()


@pytest.mark.parametrize("method", ["forkserver", slow("spawn")])
def test_a4_workers_that_are_not_asked_to_die_run_no_wrapped_call(method: str):
    with started(Wrapped, start_method=method) as loader:
        assert not any(any(batch.tolist()) for batch in loader)
