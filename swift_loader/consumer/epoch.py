"""One iteration over one epoch."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

from swift_loader.consumer.runtime import Runtime
from swift_loader.errors import LoaderClosed, SwiftLoaderError

if TYPE_CHECKING:
    from collections.abc import Callable


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
                self._number = runtime.course.iteration
                self._looks = runtime.looks
                self._handed_ns = perf_counter_ns() if self._looks else 0
            if self._is_over:
                raise StopIteration
            if runtime.course.iteration != self._number:
                raise SwiftLoaderError("this iteration was left when another one began: only the newest goes on")
            if runtime.closed:
                raise LoaderClosed(runtime.why_closed)
            try:
                return runtime.next_batch(perf_counter_ns() - self._handed_ns if self._looks else 0)
            finally:
                if self._looks:
                    self._handed_ns = perf_counter_ns()
                if runtime.course.is_over:
                    self._is_over = True
                    runtime.end()
