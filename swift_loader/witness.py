"""Looks on while batches are handed out: keeps the log, the benchmark and the trace of one consumer.

Knows deliveries and the rooms that write; the runtime tells it what happened, and it never changes what happens.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from swift_loader.errors import ConfigError
from swift_loader.pool.dispatch import Full
from swift_loader.pool.live import Live
from swift_loader.pool.recipe import Recipe
from swift_loader.pool.view import Lane, View
from swift_loader.position import Position
from swift_loader.telemetry import BatchRecord, Log, Moments, Recorder, Trace


class Witness:
    """What one consumer keeps of what it sees."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._log: Log | None = None
        self._recorder: Recorder | None = None
        self._trace: Trace | None = None
        self.live: Live | None = None
        """What `swift-loader top` is shown."""
        self._is_noted = False
        """Batches of the current epoch were noted that are in no summary."""

    def open(self) -> None:
        """Opens the files that the settings name."""
        config, consumer = self._recipe.config, self._recipe.consumer
        log = config.log
        if log is not None:
            self._log = Log(log.path, stdout=log.stdout, level=log.level, consumer=consumer)
        if config.benchmark:
            path = _path_of_consumer(config.benchmark_file, self._recipe)
            self._recorder = Recorder(consumer, path, self._log)
        if config.trace_file is not None:
            self._trace = Trace(str(_path_of_consumer(config.trace_file, self._recipe)), consumer)

    def watch(self, view: View | None) -> None:
        """Shows the loader to `swift-loader top`, where that can be done."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError, ConfigError):
                self.live = Live(self._recipe, view)
        if view is not None and self._trace is not None:
            view.lanes = self._trace.lane

    def lane_of(self, thread: str) -> Lane | None:
        """Where a thread is to tell what it does; None if nobody wants to know."""
        return None if self._trace is None else self._trace.lane(thread)

    def begin_epoch(self, at: Position, step_count: int) -> None:
        """The consumer begins an epoch, or goes on with one."""
        if self.live is not None:
            self.live.begin_epoch(at.epoch, at.step, step_count)

    def failed(self, error: BaseException) -> None:
        """A batch could not be had."""
        if self.live is not None:
            self.live.tell(f"{type(error).__name__}: {error}")

    @property
    def looks(self) -> bool:
        """Whether `note` does anything."""
        return self._recorder is not None or self._trace is not None

    def note(self, delivery: Full, moments: Moments, busy_ns: int) -> None:
        """Notes one batch, in the order in which they are handed out."""
        ticket, parcel = delivery.ticket, delivery.parcel
        record = BatchRecord(
            ticket.epoch, ticket.step, delivery.line.number, parcel.rows, parcel.nbytes, parcel.fetch_ns,
            parcel.collate_ns, parcel.encode_ns, parcel.order_wait_ns, moments.taken_ns - moments.came_ns,
            moments.handed_ns - moments.taken_ns, moments.taken_ns - moments.asked_ns, busy_ns, parcel.slowest_ns,
            parcel.slowest_index,
        )  # fmt: skip
        if self._recorder is not None:
            self._is_noted = True
            self._recorder.batch(record)
        if self._trace is not None:
            self._trace.batch(record, moments)
        if self.live is not None:
            wait_ns = moments.taken_ns - moments.asked_ns
            self.live.handed(ticket.step, parcel.rows, parcel.nbytes, wait_ns, moments.handed_ns)

    def end_epoch(self, epoch: int) -> None:
        """Sums up what was noted since the last time."""
        if self._recorder is not None and self._is_noted:
            self._recorder.epoch(epoch)
        if self._trace is not None:
            self._trace.end_epoch()
        if self.live is not None:
            self.live.end_epoch()
        self._is_noted = False

    def info(self, message: str, **facts: object) -> None:
        """Writes a line to the log, if there is one."""
        if self._log is not None:
            self._log.info(message, **facts)

    def warning(self, message: str, **facts: object) -> None:
        """The same for what should not be."""
        if self._log is not None:
            self._log.warning(message, **facts)

    def statistics(self) -> dict[str, float]:
        """Sums since the start, under flat names."""
        return {} if self._recorder is None else self._recorder.statistics()

    def close(self) -> None:
        """Writes what is left and lets go of the files; may be called twice."""
        for file in (self._recorder, self._trace, self._log, self.live):
            if file is not None:
                file.close()


def _path_of_consumer(path: str | None, recipe: Recipe) -> str | None:
    """One file for each consumer."""
    if path is None or recipe.config.consumer_count == 1:
        return path
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}-{recipe.consumer}{whole.suffix}"))
