"""Rows of a table that run each time, and those that ``-m slow`` runs: more of the same, or the same in more worlds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A row of a table that runs only where there is time."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(rows: Iterable[Any], runs: Callable[[Any], bool]) -> list[Any]:
    """A table whose rows are slow but for those of which ``runs`` says that they run each time."""
    return [row if runs(row) else slow(*row) if isinstance(row, tuple) else slow(row) for row in rows]


#: For a test that is about every start method: each of them is a way of its own, and one of them shows the row.
start_methods = pytest.mark.parametrize("method", ["forkserver", slow("spawn"), slow("fork")])


def examples(count: int) -> int:
    """So many examples of a property where there is time (.ci/run), and a fifth of them each time."""
    return count if os.environ.get("SWIFT_TESTS_EXAMPLES") == "all" else -(-count // 5)
