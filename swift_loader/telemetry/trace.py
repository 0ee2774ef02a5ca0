"""Pictures of time: what each worker and the consumer did, as a Chrome trace that Perfetto and chrome://tracing show.

Keeps the last batches only, so that a long run neither fills the memory nor makes a file that no viewer opens. Knows
nothing of where the times come from.
"""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from swift_loader.telemetry.outfile import publish, tell, trusted
from swift_loader.telemetry.record import BatchRecord

#: Some tens of megabytes of JSON.
_KEPT_BATCHES = 20_000


class Moments(NamedTuple):
    """When things happened to one batch, on the monotonic clock that all processes of a host share."""

    came_ns: int
    """Its parcel reached the consumer's process."""
    asked_ns: int
    """The consumer asked for a batch."""
    taken_ns: int
    """It got the parcel."""
    handed_ns: int
    """It got the batch."""


class Trace:
    """Gathers batches; writes them when it is closed.

    Args:
        path: The file. Its folder is made.
        consumer: Whose batches these are: the process of the picture.
    """

    def __init__(self, path: str, consumer: int) -> None:
        self._path: Path | None = Path(path).absolute()
        try:
            trusted(self._path)
        except OSError as error:
            self._give_up(error)
        self._consumer = consumer
        self._batches: deque[tuple[BatchRecord, Moments]] = deque(maxlen=_KEPT_BATCHES)

    def batch(self, record: BatchRecord, moments: Moments) -> None:
        """Notes one batch."""
        if self._path is not None:
            self._batches.append((record, moments))

    def close(self) -> None:
        """Writes the file, as a whole or not at all; may be called twice."""
        path, self._path = self._path, None
        if path is None:
            return
        text = json.dumps({"traceEvents": self._all_events(), "displayTimeUnit": "ms"})
        try:
            publish(path, text.encode())
        except OSError as error:
            tell("trace_file", path, error)

    def _give_up(self, error: OSError) -> None:
        path, self._path = self._path, None
        assert path is not None
        tell("trace_file", path, error)

    def _all_events(self) -> list[dict[str, Any]]:
        workers = sorted({record.worker for record, _ in self._batches})
        names = {0: "consumer", **{1 + worker: f"worker {worker}" for worker in workers}}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": self._consumer, "tid": lane, "args": {"name": name}}
            for lane, name in names.items()
        ]
        for record, moments in self._batches:
            events += self._events(record, moments)
        return events

    def _events(self, record: BatchRecord, moments: Moments) -> list[dict[str, Any]]:
        which = {"epoch": record.epoch, "step": record.step}
        begun = moments.came_ns - record.fetch_ns - record.collate_ns - record.encode_ns
        collates, encodes = begun + record.fetch_ns, moments.came_ns - record.encode_ns
        lane = 1 + record.worker
        return [
            self._slice("collect batch data", lane, begun, collates, {**which, "slowest": record.slowest_index}),
            self._slice("collate batch data", lane, collates, encodes, which),
            self._slice("serialize batch data", lane, encodes, moments.came_ns, which),
            self._slice("consumer works", 0, moments.asked_ns - record.busy_ns, moments.asked_ns, which),
            self._slice("consumer waits for data", 0, moments.asked_ns, moments.taken_ns, which),
            self._slice("transfer to device", 0, moments.taken_ns, moments.handed_ns, which),
        ]

    def _slice(self, name: str, lane: int, begun_ns: int, ended_ns: int, args: dict[str, int]) -> dict[str, Any]:
        micros = {"ts": begun_ns / 1000, "dur": (ended_ns - begun_ns) / 1000}
        return {"ph": "X", "name": name, "pid": self._consumer, "tid": lane, **micros, "args": args}
