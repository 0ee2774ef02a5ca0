"""Rows A5, A6 and A7 of the faults: samples that end their worker, by leaving or by a crash, once or each time."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from swift_loader import PoisonedTicket
from tests.datasets import calls
from tests.deadly_datasets import ENDINGS, Ends
from tests.fault.oracle import BATCH, WORLDS, World, differences, faultless, record
from tests.loaders import started
from tests.slow import slow

#: Each way once, and each world at least once where there is time. All pairs: ``-m soak``.
SOME = list(zip(ENDINGS, cycle(world for world in WORLDS if world.method != "spawn"), strict=False))
SPAWNED = [slow(how, world) for how, world in zip(ENDINGS, cycle(WORLDS), strict=False) if world.method == "spawn"]
TAKEN = [*SOME, *zip(ENDINGS, cycle(WORLDS), strict=False)]
ALL = [
    pytest.param(how, world, marks=pytest.mark.soak) for how in ENDINGS for world in WORLDS if (how, world) not in TAKEN
]

in_ways = pytest.mark.parametrize(("how", "world"), [*SOME, *SPAWNED, *ALL], ids=str)


@in_ways
def test_a5_a6_a7_one_that_ends_its_worker_twice_changes_nothing(how: str, world: World, tmp_path: Path):
    def consume() -> list:
        with started(Ends, {"folder": str(tmp_path), "how": how, "times": 2}, **world.settings) as loader:
            return record(loader)

    assert not differences(world.run(consume), faultless())
    assert len(calls(tmp_path, "ends")) - 2 in (0, 1)  # of several, one may take the batch over just before


@in_ways
def test_a7_one_that_does_it_each_time_is_named_and_the_others_come(how: str, world: World, tmp_path: Path):
    def consume() -> tuple[str, list]:
        with started(Ends, {"folder": str(tmp_path), "how": how}, **world.settings, shuffle=False) as loader:
            batches = iter(loader)
            first = next(batches)
            with pytest.raises(PoisonedTicket) as caught:
                next(batches)
            return str(caught.value), record([first, *batches])

    told, found = world.run(consume)
    assert "killed 3 workers" in told
    assert "sample 13" in told
    assert (how if how.startswith("SIG") else f"exited with code {how[-1] if how != 'sys.exit' else 3}") in told
    assert ("in __getitem__" in told) == how.startswith("SIG")  # where it stood when it crashed
    whole = faultless(shuffle=False)
    del whole[13 // BATCH]
    assert [one.indices for one in found] == [one.indices for one in whole]
    assert [one.crc for one in found] == [one.crc for one in whole]
    assert len(calls(tmp_path, "ends")) >= 3  # more where the next epoch was begun
