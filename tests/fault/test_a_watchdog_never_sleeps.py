"""Rows A11 and A18 of the faults together: a worker that stands still is seen whatever else goes on."""

from __future__ import annotations

import warnings
from pathlib import Path

from tests.datasets import Hangs, calls
from tests.loaders import started
from tests.watching import is_gone, until, workers


def test_a11_a18_while_the_system_refuses_one_worker_another_that_stands_still_is_killed(tmp_path: Path):
    settings = {"start_method": "fork", "allow_fork": True, "multithread": False, "timeout_s": 0.5, "shuffle": False}
    with warnings.catch_warnings(), started(Hangs, {"folder": str(tmp_path)}, **settings) as loader:
        warnings.simplefilter("ignore", RuntimeWarning)  # it may come to tell of the one that is missing
        next(iter(loader))
        hanging, *_ = until(lambda: [call.pid for call in calls(tmp_path, "hangs")])
        both = until(lambda: workers() if len(workers()) == 2 else None)
        first, second = sorted(both, key=lambda one: one.pid != hanging)
        server = first.parent()
        assert server is not None
        server.kill()  # without it there are no more workers
        until(lambda: is_gone(server))
        second.kill()
        until(lambda: is_gone(first), "the end of the one that hangs")
