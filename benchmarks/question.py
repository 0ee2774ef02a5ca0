"""What a benchmark is made of: a question, its cases, the figures it should reach, and how long to run.

Pure records. They do not know how a case is run, timed, counted or drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

Result = dict[str, Any]


class Side(Enum):
    """Whose figure a case is: it decides the colour and the order of reading."""

    OURS = "ours"
    TORCH = "torch"
    CEILING = "ceiling"


@dataclass(frozen=True)
class Settings:
    """How much a case should do. The same for every case of a run."""

    #: Epochs go on until this much time is over: at least `epochs` of them, always whole ones.
    seconds: float
    seed: int = 1
    epochs: int = 3
    #: A smoke run divides the workloads' sizes by this.
    shrink: int = 1

    def size(self, count: int) -> int:
        """A workload's size in this run."""
        return max(1, count // self.shrink)


@dataclass(frozen=True)
class Case:
    """One measurement, made in a child process of its own."""

    name: str
    label: str
    side: Side
    run: Callable[[Settings], Result]
    #: Runs in the first so many rounds only: for what is very slow and has a huge margin.
    rounds: int | None = None
    #: Whether a smoke run has time for it.
    smoke: bool = True
    #: Cases of one group stand together in the picture.
    group: str = ""


def usual_cases(swift: Callable[[Settings], Result], torch: Callable[..., Result]) -> tuple[Case, ...]:
    """Our loader with its defaults, and torch's as it is used: forked for each epoch, kept, spawned."""
    return (
        Case("swift", "ours", Side.OURS, swift),
        Case("torch_fork", "torch, fork", Side.TORCH, torch),
        Case("torch_persistent", "torch, fork, persistent", Side.TORCH, partial(torch, persistent=True)),
        Case("torch_spawn", "torch, spawn", Side.TORCH, partial(torch, start_method="spawn"), rounds=1),
    )


@dataclass(frozen=True)
class Goal:
    """A figure worth reading: that of `case` alone, or divided by that of `against` in the same round."""

    text: str
    case: str
    against: str | None = None
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Column:
    """A further figure of every case, beside the one that the question is about."""

    key: str
    header: str


@dataclass(frozen=True)
class Question:
    """One row of what the loader is to be judged by."""

    name: str
    title: str
    metric: str
    unit: str
    cases: tuple[Case, ...]
    goals: tuple[Goal, ...]
    columns: tuple[Column, ...] = ()
    higher_is_better: bool = True
    seconds: float = 4.0
    #: The value of the module's own option that selects this question, where a module holds several.
    variant: str | None = None
    #: Draws a further picture of the record of a run, beside the files whose common stem it is given.
    chart: Callable[[Result, Path], None] | None = None
    #: Sentences to print below the table, such as what this machine has no package for.
    notes: tuple[str, ...] = ()

    def case(self, name: str) -> Case:
        """The case of that name."""
        for case in self.cases:
            if case.name == name:
                return case
        known = ", ".join(case.name for case in self.cases)
        raise SystemExit(f"{self.name} has no case {name!r}; it has: {known}")
