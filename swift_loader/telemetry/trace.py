"""The trace of one consumer: what each of its threads and workers did in the last steps, as a file.

Keeps the last steps only, so that a long run neither fills the memory nor makes a file that no viewer opens. The file
is written at an epoch's end where that costs next to nothing, when the loader is closed, and when Python ends. What it
looks like is `picture`'s business.
"""

from __future__ import annotations

import atexit
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter_ns

from swift_loader.host.outfile import publish, tell, trusted
from swift_loader.telemetry import picture
from swift_loader.telemetry.picture import Moments, Span, Supplied
from swift_loader.telemetry.record import BatchRecord

#: Some ten megabytes of JSON.
KEPT_STEPS = 5_000
#: Of all threads together.
_KEPT_SPANS = 4 * KEPT_STEPS
#: In the middle of a run the file is written again after so many times what that takes.
_WORTH = 100


class Trace:
    """Gathers batches and what threads did, and writes them.

    Args:
        path: The file. Its folder is made.
        consumer: Whose batches these are: the process of the picture.
        servers: Which of the workers are servers, and where.
    """

    def __init__(self, path: str, consumer: int, servers: Mapping[int, str] | None = None) -> None:
        self._path: Path | None = Path(path).absolute()
        self._consumer = consumer
        self._servers = servers or {}
        self._pid = os.getpid()
        self._batches: deque[tuple[BatchRecord, Moments]] = deque(maxlen=KEPT_STEPS)
        self._spans: deque[tuple[str, Span]] = deque(maxlen=_KEPT_SPANS)
        self._supplied: deque[Supplied] = deque(maxlen=KEPT_STEPS)
        self._due_ns = 0
        self._is_written = True
        """Nothing was noted that is not in the file."""
        try:
            trusted(self._path)
        except OSError as error:
            self._give_up(error)
            return
        atexit.register(self._at_exit)  # a script may end without closing its loader

    def batch(self, record: BatchRecord, moments: Moments) -> None:
        """Notes one batch."""
        if self._path is not None:
            self._batches.append((record, moments))
            self._is_written = False

    def lane(self, name: str) -> Callable[[Span], None]:
        """Where a thread tells what it does: to be called with one span after the other."""
        keep = self._spans.append
        return lambda span: keep((name, span))

    def supplied(self, at_ns: int, figures: Mapping[str, float]) -> None:
        """Notes what a store had given by then."""
        if self._path is not None:
            self._supplied.append(Supplied(at_ns, figures))

    def end_epoch(self) -> None:
        """Writes the file if that takes no more than a hundredth of the time that has passed since it was written."""
        begun = perf_counter_ns()
        if self._path is not None and begun >= self._due_ns and not self._is_written:
            self._write(self._path)
            ended = perf_counter_ns()
            self._is_written = True
            self._due_ns = ended + _WORTH * (ended - begun)

    def close(self) -> None:
        """Writes the file, as a whole or not at all; may be called twice."""
        path, self._path = self._path, None
        if path is not None:
            atexit.unregister(self._at_exit)
            self._write(path)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # not in a child that was forked
            self.close()

    def _write(self, path: Path) -> None:
        try:
            threads: dict[str, list[Span]] = {}
            for name, span in list(self._spans):
                threads.setdefault(name, []).append(span)
            text = picture.of(self._consumer, list(self._batches), threads, self._servers, list(self._supplied))
            publish(path, text.encode())
        except OSError as error:
            self._path = None
            atexit.unregister(self._at_exit)
            tell("trace_file", path, error)

    def _give_up(self, error: OSError) -> None:
        path, self._path = self._path, None
        if path is not None:
            atexit.unregister(self._at_exit)
            tell("trace_file", path, error)
