"""Halves of the worlds, in which rows take turns; each row in all of them on demand.

Each half has every start method, both worker counts, and a thread.
"""

from __future__ import annotations

import pytest

from tests.fault.oracle import WORLDS

_HALF = ("forkserver-4-thread", "spawn-4", "fork-1")

in_some_worlds = pytest.mark.parametrize(
    "world",
    [world if str(world) in _HALF else pytest.param(world, marks=pytest.mark.soak) for world in WORLDS],
    ids=str,
)
in_the_other_worlds = pytest.mark.parametrize(
    "world",
    [world if str(world) not in _HALF else pytest.param(world, marks=pytest.mark.soak) for world in WORLDS],
    ids=str,
)
