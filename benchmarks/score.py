"""From the figures of each round to medians, ratios within a round, and whether a goal was reached.

Pure: figures in, figures out. A round in which a case failed (or did not run) holds None for it and is left out of
that case's figures only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from benchmarks.question import Goal

Item = TypeVar("Item")

#: For each case, its figure in each round.
Figures = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Spread:
    """The median of some rounds, with the lowest and the highest."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Verdict:
    """What became of a goal: no spread when there was nothing to count, no `reached` when nothing was asked for."""

    goal: Goal
    spread: Spread | None
    reached: bool | None


def spread(values: Sequence[float | None]) -> Spread | None:
    """Median, lowest and highest of the rounds that have a figure."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    return Spread(median(present), min(present), max(present))


def ratios(over: Sequence[float | None], under: Sequence[float | None]) -> list[float | None]:
    """Round by round, `over / under`. Noise that covers a whole round falls out, so ratios come before medians."""
    return [
        None if above is None or below is None or below == 0 else above / below
        for above, below in zip(over, under, strict=False)
    ]


def judge(goal: Goal, figures: Figures) -> Verdict:
    """Hold the rounds' figures against a goal, by the median."""
    values: Sequence[float | None] = figures.get(goal.case, ())
    if goal.against is not None:
        values = ratios(values, figures.get(goal.against, ()))
    found = spread(values)
    if goal.at_least is None and goal.at_most is None:
        return Verdict(goal, found, None)
    reached = (
        found is not None
        and (goal.at_least is None or found.median >= goal.at_least)
        and (goal.at_most is None or found.median <= goal.at_most)
    )
    return Verdict(goal, found, reached)


def rotated(items: Sequence[Item], by: int) -> list[Item]:
    """The items in an order that starts `by` places later, so that nobody always follows the same neighbour."""
    if not items:
        return []
    by %= len(items)
    return [*items[by:], *items[:by]]
