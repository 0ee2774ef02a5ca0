"""Threads that fetch samples inside a worker, for datasets that wait.

They are kept busy across batches: while the last samples of one are waited for, those of the next are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any


class Crew:
    """Fetches in order what is asked in order."""

    def __init__(self, thread_count: int, fetch: Callable[[int], Any]) -> None:
        self._executor = ThreadPoolExecutor(thread_count, "swift-fetch")
        self._fetch = fetch
        self._most = 2 * thread_count
        """So many samples are asked for at a time: a thread that is done finds the next, and more would take memory."""
        self._asked: deque[tuple[int, Future[Any]]] = deque()

    def results(self, indices: list[int], following: Sequence[int]) -> Generator[Any]:
        """What ``fetch`` gives for each index; those that probably follow are asked for as soon as threads are free."""
        asked = self._asked
        if [index for index, _ in asked] != indices[: len(asked)]:
            self.forget()
        upcoming = chain(indices[len(asked) :], following)
        done = False
        try:
            for _ in indices:
                while len(asked) < self._most and (index := next(upcoming, None)) is not None:
                    asked.append((index, self._executor.submit(self._fetch, index)))
                yield asked.popleft()[1].result()
            done = True
        finally:
            if not done:
                self.forget()

    def forget(self) -> None:
        """What was asked for is not wanted any more."""
        for _, future in self._asked:
            future.cancel()
        self._asked.clear()

    def close(self) -> None:
        """Ends the threads; those that hang in the dataset are not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)
