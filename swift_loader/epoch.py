"""One iteration over one epoch, and what frameworks name epochs by."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

from swift_loader.config import whole_number
from swift_loader.errors import LoaderClosed, SwiftLoaderError
from swift_loader.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from swift_loader.loader import SwiftLoader


class Epoch:
    """One iteration over one epoch. Nothing happens before the first batch is asked for."""

    def __init__(self, started: Callable[[], Runtime]) -> None:
        self._started = started
        self._runtime: Runtime | None = None
        self._is_over = False
        self._number = 0
        self._handed_ns = 0
        self._looks = False
        self._turn = threading.RLock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._turn:  # of two threads that ask at the same time, the second would be given what follows the epoch
            runtime = self._runtime
            if runtime is None:
                runtime = self._runtime = self._started()
                self._is_over = runtime.begin() == 0
                self._number = runtime.iteration
                self._looks = runtime.looks
                self._handed_ns = perf_counter_ns() if self._looks else 0
            if self._is_over:
                raise StopIteration
            if runtime.iteration != self._number:
                raise SwiftLoaderError("this iteration was left when another one began: only the newest goes on")
            if runtime.closed:
                raise LoaderClosed(runtime.why_closed)
            try:
                return runtime.next_batch(perf_counter_ns() - self._handed_ns if self._looks else 0)
            finally:
                if self._looks:
                    self._handed_ns = perf_counter_ns()
                if runtime.is_over:
                    self._is_over = True
                    runtime.end()


class EpochSetter:
    """Stands where torch's loader has its sampler, for frameworks that tell it the epoch."""

    def __init__(self, loader: SwiftLoader) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """As `SwiftLoader.set_epoch`, but never back: a loader that a framework goes through again and again beside a
        longer one is ahead of the epochs that the framework counts.
        """
        number = whole_number(epoch)
        if number is None or not 0 <= number <= int(self._loader.state_dict()["epoch"]):
            self._loader.set_epoch(epoch)
