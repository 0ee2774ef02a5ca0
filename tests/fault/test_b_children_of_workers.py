"""Rows B14 and B16 of the faults: what user code starts in a worker goes with that worker, however it goes.

What becomes of it when the trainer is killed is told in test_c_trainer_gone.py.
"""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path

import pytest

from tests.datasets import calls
from tests.fault.hanging import StartsOthers
from tests.fault.nesting import Nested
from tests.fault.oracle import World
from tests.fault.worlds import in_some_worlds
from tests.loaders import started
from tests.slow import slow
from tests.watching import descendants, flat, is_gone, living, until, workers


def _children(folder: Path, worker: int | None = None) -> list[int]:
    """The processes that workers have said to have started, or those of one worker."""
    return [call.index for call in calls(folder, "started") if worker in (None, call.pid)]


@in_some_worlds
def test_b14_what_a_worker_has_started_goes_with_it_and_the_rest_at_close(world: World, tmp_path: Path):
    def run() -> None:
        settings = {**world.settings, "shuffle": False}
        kwargs = {"folder": str(tmp_path), "count": 160, "programs_alone": world.workers == 1}
        with started(StartsOthers, kwargs, **settings) as loader:
            iterator = iter(loader)
            found = [next(iterator).tolist()]
            until(lambda: len(_children(tmp_path)) == 2 * world.workers)
            victim = until(workers)[0]
            orphans = _children(tmp_path, victim.pid)
            assert len(living(orphans)) == 2
            victim.kill()
            until(lambda: not living(orphans), "the end of a dead worker's children", deadline_s=10)
            found += [batch.tolist() for batch in iterator]
            assert list(chain.from_iterable(found)) == list(range(160))
            until(lambda: len(_children(tmp_path)) == 2 * world.workers + 2)
            begun = time.monotonic()
        took_s.append(time.monotonic() - begun)

    took_s: list[float] = []
    world.run(run)
    assert until(lambda: not living(_children(tmp_path)), "the end of all", deadline_s=10) is not None
    assert took_s[0] < 10  # to reach: 1 s


@pytest.mark.parametrize("method", ["forkserver", slow("fork")])
def test_b16_a_loader_within_a_worker_works_and_goes_with_it(method: str):
    with started(Nested, {"count": 32}, worker_per_consumer=1, shuffle=False, start_method=method) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == list(range(8))
        inner = until(lambda: [one for one in workers() if len(workers()) == 3])
        outer = next(one for one in inner if one.children())
        family = [outer, *outer.children(recursive=True)]
        assert len(family) >= 4  # with what the inner loader's workers are forked from
        outer.kill()
        until(lambda: not [one for one in family if not is_gone(one)])
        assert len(flat(iterator)) == 24  # made by the next worker, whose loader begins anew
    until(lambda: not descendants(), "the end of all", deadline_s=10)
