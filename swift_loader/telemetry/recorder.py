"""Gathers the records of one consumer's batches: sums for `statistics()`, JSON lines for who wants to look closer.

Taking a record is an append to a list. All else happens every `_FLUSH_AT` records and at an epoch's end, so that
neither memory nor the time of a single batch grows with the length of a run. Knows nothing of where the times come
from.
"""

from __future__ import annotations

import json
from typing import Any

from swift_loader.telemetry.log import Log
from swift_loader.telemetry.outfile import OutFile
from swift_loader.telemetry.record import BatchRecord

#: Small enough that writing that many lines takes a millisecond, large enough that nobody notices the turn.
_FLUSH_AT = 512

_NS = 1e9

#: All fields are whole numbers, so one template writes a line; ten times faster than json.dumps.
_BATCH_LINE = '{"kind": "batch", "consumer": %d, ' + ", ".join(f'"{name}": %d' for name in BatchRecord._fields) + "}\n"

#: The document's names of the quantities, for the summary.
_TASKS = {
    "collect batch data": "fetch_ns",
    "collate batch data": "collate_ns",
    "serialize batch data": "encode_ns",
    "wait for an order": "order_wait_ns",
    "wait to be merged": "merge_ns",
    "transfer to device": "land_ns",
    "consumer waits for data": "wait_ns",
    "consumer works": "busy_ns",
}


class _Sums:
    """The sums and maxima of many records."""

    def __init__(self) -> None:
        self.batches = 0
        self.total: dict[str, int] = dict.fromkeys(BatchRecord._fields, 0)
        self.most: dict[str, int] = dict.fromkeys(BatchRecord._fields, 0)
        self.workers: set[int] = set()
        self.slowest = (0, -1)

    def add(self, records: list[BatchRecord]) -> None:
        columns = dict(zip(BatchRecord._fields, zip(*records, strict=True), strict=True))
        self.batches += len(records)
        for name, column in columns.items():
            self.total[name] += sum(column)
            self.most[name] = max(self.most[name], *column)
        self.workers.update(columns["worker"])
        slowest = max(zip(columns["slowest_ns"], columns["slowest_index"], strict=True))
        self.slowest = max(self.slowest, slowest)

    def seconds(self, name: str) -> float:
        return self.total[name] / _NS


class Recorder:
    """Takes a `BatchRecord` per batch; writes JSON lines per epoch.

    Args:
        consumer: Whose batches these are.
        path: A file that gets a line per batch and a line per epoch. Its folder is made.
        log: Gets the line per epoch where there is no ``path``. (A line per batch would drown all else.)

    Example:
        >>> recorder = Recorder(consumer=0, path=None, log=None)
        >>> recorder.statistics()["batches"]
        0.0
    """

    def __init__(self, consumer: int, path: str | None, log: Log | None) -> None:
        self._consumer = consumer
        self._log = log
        self._file = None if path is None else OutFile(path, "benchmark_file")
        self._run = _Sums()
        self._epoch = _Sums()
        self._epoch_number = 0
        self._pending: list[BatchRecord] = []

    def batch(self, record: BatchRecord) -> None:
        """Notes one batch, in the order in which they are handed out."""
        self._pending.append(record)
        if len(self._pending) >= _FLUSH_AT:
            self._flush()

    def epoch(self, epoch: int) -> None:
        """Writes what is known of ``epoch``, whose batches were all noted (or that was left early)."""
        self._epoch_number = epoch
        self._flush()
        line = json.dumps(self._summary(epoch))
        if self._file is not None:
            self._file.write(line + "\n")
        elif self._log is not None:
            self._log.info(line)
        self._epoch = _Sums()

    def statistics(self) -> dict[str, float]:
        """Sums since the start, under flat names.

        ``wait_s`` is how long the consumer waited for data, ``busy_s`` how long it did something else between batches
        (so data waited for it); ``merge_s`` is how long finished batches lay ready, ``order_wait_s`` how long workers
        had nothing to do.
        """
        self._flush()
        run = self._run
        times = {name.removesuffix("_ns") + "_s": run.seconds(name) for name in _TASKS.values()}
        return {
            "epoch": float(self._epoch_number),
            "batches": float(run.batches),
            "samples": float(run.total["rows"]),
            "bytes": float(run.total["nbytes"]),
            **times,
            "slowest_sample_s": run.slowest[0] / _NS,
            "slowest_sample_index": float(run.slowest[1]),
        }

    def close(self) -> None:
        """Writes what is left and lets go of the file; may be called twice."""
        self._flush()
        if self._file is not None:
            self._file.close()

    def __repr__(self) -> str:
        to = self._file.path if self._file is not None else "log" if self._log is not None else "nowhere"
        return f"Recorder(consumer={self._consumer}, batches={self._run.batches + len(self._pending)}, to={str(to)!r})"

    def _flush(self) -> None:
        records, self._pending = self._pending, []
        if not records:
            return
        self._epoch_number = records[-1].epoch
        self._run.add(records)
        self._epoch.add(records)
        if self._file is not None:
            self._file.write("".join([_BATCH_LINE % (self._consumer, *record) for record in records]))

    def _summary(self, epoch: int) -> dict[str, Any]:
        sums = self._epoch
        made_s = sum(sums.seconds(name) for name in ("fetch_ns", "collate_ns", "encode_ns"))
        passed_s = sums.seconds("wait_ns") + sums.seconds("busy_ns")
        return {
            "kind": "epoch",
            "consumer": self._consumer,
            "epoch": epoch,
            "batches": sums.batches,
            "samples": sums.total["rows"],
            "bytes": sums.total["nbytes"],
            "seconds": round(passed_s, 6),
            **{task: _spread(sums, name) for task, name in _TASKS.items()},
            # What the workers can make, and what the consumer did take: the smaller one says who is waited for.
            "injection": _rate(sums.batches * len(sums.workers), made_s),
            "consumption": _rate(sums.batches, passed_s),
            "slowest sample": {"index": sums.slowest[1], "ms": round(sums.slowest[0] / 1e6, 3)},
        }


def _spread(sums: _Sums, name: str) -> dict[str, float]:
    mean_ns = sums.total[name] / sums.batches if sums.batches else 0.0
    return {
        "total_s": round(sums.seconds(name), 6),
        "mean_ms": round(mean_ns / 1e6, 6),
        "max_ms": round(sums.most[name] / 1e6, 6),
    }


def _rate(count: int, seconds: float) -> float | None:
    """Batches per second; none where the time was too short to tell."""
    return round(count / seconds, 3) if seconds > 0 else None
