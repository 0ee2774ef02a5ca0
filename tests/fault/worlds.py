"""Halves of the worlds, in which rows take turns: one world each time, its half where there is time, all on demand.

Each half has every start method, both worker counts, and a thread.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.fault.oracle import WORLDS

_HALF = ("forkserver-4-thread", "spawn-4", "fork-1")
_OTHER_HALF = ("fork-4", "spawn-1-thread", "forkserver-1")


def _rows(half: tuple[str, ...]) -> list[Any]:
    """The first of a half is a row as it is."""
    marks = {half[0]: (), **dict.fromkeys(half[1:], (pytest.mark.slow,))}
    return [pytest.param(world, marks=marks.get(str(world), (pytest.mark.soak,))) for world in WORLDS]


in_some_worlds = pytest.mark.parametrize("world", _rows(_HALF), ids=str)
in_the_other_worlds = pytest.mark.parametrize("world", _rows(_OTHER_HALF), ids=str)
