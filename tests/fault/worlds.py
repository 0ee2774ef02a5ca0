"""Three of the worlds, for rows that are about bytes rather than about workers; all of them on demand."""

from __future__ import annotations

import pytest

from tests.fault.oracle import WORLDS

#: Each start method, each worker count, and a thread; "fork" cannot be with a thread.
_ALWAYS = ("forkserver-4-thread", "spawn-1-thread", "fork-1")

in_some_worlds = pytest.mark.parametrize(
    "world",
    [world if str(world) in _ALWAYS else pytest.param(world, marks=pytest.mark.soak) for world in WORLDS],
    ids=str,
)
