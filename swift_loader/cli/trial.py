"""A small loader that is really started, so that "it works here" is seen and not only concluded."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from swift_loader.errors import SwiftLoaderError
from swift_loader.loader import SwiftLoader
from swift_loader.settings.arguments import StartMethod

_BATCH, _BATCHES, _EPOCHS = 64, 100, 3
#: A worker of so small a dataset that is not done by then never will be.
_TIMEOUT_S = 20.0
#: Longer than a breath: only then a bar is shown.
_BREATH_S = 1.0


class Squares:
    """Small pictures that are known: sample i is all i."""

    def __len__(self) -> int:
        return _BATCH * _BATCHES

    def __getitem__(self, index: int) -> Any:
        return np.full((3, 32, 32), index % 251, np.uint8), index


@dataclass(frozen=True)
class Trial:
    """How it went."""

    workers: int
    failure: str = ""
    """Why it did not work, if it did not."""
    first_batch_s: float = 0.0
    """From `start` to the first batch in hand."""
    samples_per_s: float = 0.0
    close_s: float = 0.0


@dataclass(frozen=True)
class Start:
    """How one way to start workers went."""

    method: StartMethod
    failure: str = ""
    """Why it did not work, if it did not."""
    first_batch_s: float = 0.0


def starts() -> list[Start]:
    """Every start method, with one worker and one batch."""
    return [_start(method) for method in get_args(StartMethod)]


def run(workers: int) -> Trial:
    """Starts a loader, takes some epochs of batches, looks whether they are right, and closes it."""
    try:
        with SwiftLoader(Squares, {}, _BATCH, 1, workers, timeout_s=_TIMEOUT_S, benchmark=False) as loader:
            return _tried(loader, workers)
    except (SwiftLoaderError, OSError) as error:
        return Trial(workers, f"{type(error).__name__}: {error}")


def _start(method: StartMethod) -> Start:
    begun = time.perf_counter()
    try:
        with SwiftLoader(
            Squares, {}, _BATCH, 1, 1, start_method=method, timeout_s=_TIMEOUT_S, benchmark=False
        ) as loader:
            loader.start(0)
            next(iter(loader))
            return Start(method, "", time.perf_counter() - begun)
    except (SwiftLoaderError, OSError) as error:
        return Start(method, f"{type(error).__name__}: {error}")


def _tried(loader: SwiftLoader, workers: int) -> Trial:
    begun = time.perf_counter()
    loader.start(0)
    first_s, count = 0.0, 0
    for pictures, labels in _with_bar(batch for _ in range(_EPOCHS) for batch in loader):
        first_s = first_s or time.perf_counter() - begun
        if not bool((pictures[:, 0, 0, 0] == labels % 251).all()):
            return Trial(workers, "a batch holds other bytes than its samples")
        count += len(labels)
    rest_s = time.perf_counter() - begun - first_s
    if count != _EPOCHS * _BATCH * _BATCHES:
        return Trial(workers, f"{count:,} samples came, {_EPOCHS * _BATCH * _BATCHES:,} should have")
    closing = time.perf_counter()
    loader.close()
    return Trial(workers, "", first_s, (count - _BATCH) / rest_s, time.perf_counter() - closing)


def _with_bar(batches: Iterable[Any]) -> Iterator[Any]:
    with contextlib.suppress(ModuleNotFoundError):  # of an extra: without it, no bar
        from swift_loader.cli.bar import bars

        shown = bars()(
            batches, "a small loader", _BATCHES * _EPOCHS, delay=_BREATH_S, disable=None, leave=False, ncols=80
        )
        return iter(shown)
    return iter(batches)
