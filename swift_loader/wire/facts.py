"""What a process learns of its dataset once it is built, and tells the consumer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.errors import ConfigError
from swift_loader.plan.runs import Runs

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan


class Facts(NamedTuple):
    """All that a plan may depend on. The same wherever the dataset is built."""

    sample_count: int
    runs: Runs | None = None
    """Which neighbours are cheap to read together, if the dataset says so."""


def facts_of(dataset: Any) -> Facts:
    """Those of a map-style dataset.

    Raises:
        ConfigError: if it is not one, or its ``runs()`` are not those of its samples.
    """
    sample_count = checked_length(dataset)
    return Facts(sample_count, _runs_of(dataset, sample_count))


def checked_length(dataset: Any) -> int:
    """The number of samples of a map-style dataset.

    Raises:
        ConfigError: if it is not one.
    """
    name = type(dataset).__name__
    if not hasattr(dataset, "__getitem__"):
        raise ConfigError(
            f"{name} has no __getitem__: SwiftLoader takes map-style datasets, whose samples can be asked for by "
            "index. Write an iterable one into shards once, or put it behind a data server"
        )
    if not hasattr(dataset, "__len__"):
        raise ConfigError(f"{name} has no __len__: give it one that says how many samples there are")
    try:
        return len(dataset)
    except Exception as error:
        raise ConfigError(
            f"the __len__ of {name} raised {type(error).__name__}: {error}. It must give the number of samples, a "
            f"whole number from 0 to {sys.maxsize}"
        ) from error


def _runs_of(dataset: Any, sample_count: int) -> Runs | None:
    tell = getattr(dataset, "runs", None)
    lengths = tell() if callable(tell) else None
    if lengths is None:
        return None
    runs = Runs(lengths)  # groups, if they are told, are kept
    if runs.sample_count != sample_count:
        raise ConfigError(
            f"the runs() of {type(dataset).__name__} are {runs.sample_count} samples together and its len() is "
            f"{sample_count}: they must be the lengths of all runs, in the order of the dataset"
        )
    return runs


def wants_runs(plan: Any) -> bool:
    """Whether a plan is to be told of the dataset's runs."""
    return callable(getattr(plan, "with_runs", None))


def with_runs(plan: Any, runs: Runs | None) -> Plan:
    """The plan for a dataset with these runs, or with none."""
    if not wants_runs(plan):
        return plan  # type: ignore[no-any-return] # its methods were looked for when it was given
    return plan.with_runs(None if runs is None else runs.lengths)  # type: ignore[no-any-return] # the user's
