"""Gathers the records of one consumer's batches: sums for `statistics()`, a summary of each epoch, lines for a file.

Taking a record is an append to a list. All else happens every `_FLUSH_AT` records, once a second, and at an epoch's
end, so that neither memory nor the time of a single batch grows with the length of a run. Where there is a file, a
thread sees to the second even when no batch comes, and what is left is written when the loader is forgotten or the
interpreter ends: only a process that is killed loses lines, and of those no more than a second's. Knows nothing of
where the times come from.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from swift_loader.host.outfile import OutFile
from swift_loader.telemetry.log import Log
from swift_loader.telemetry.record import BatchRecord
from swift_loader.telemetry.summary import PERCENTILES, TASKS, Spread, Summary, Tally

#: Small enough that writing that many lines takes a millisecond, large enough that nobody notices the turn.
_FLUSH_AT = 512
_FLUSH_EVERY_S = 1.0
#: Some three million batches. Two files that were full before are kept beside it.
_MOST_NBYTES = 1 << 30

_NS = 1e9

#: All fields are whole numbers, so one template writes a line; ten times faster than json.dumps.
_FIGURES = ", ".join(f'"{name}": %d' for name in BatchRecord._fields)
_BATCH_LINE = f'{{"kind": "batch", "run": %d, "consumer": %d, {_FIGURES}}}\n'


class Late(NamedTuple):
    """A record whose transfer a device measures by its own clock: known only when the copy is done."""

    record: BatchRecord
    elapsed_ns: Callable[[], int | None]

    def known(self) -> BatchRecord:
        """The record, with the device's time if that is known by now, else with the host's."""
        elapsed_ns = self.elapsed_ns()
        return self.record if elapsed_ns is None else self.record._replace(transfer_ns=elapsed_ns)


class Recorder:
    """Takes a `BatchRecord` per batch; writes JSON lines per epoch.

    Args:
        consumer: Whose batches these are.
        path: A file that gets a line per batch and a line per epoch. Its folder is made. A full one (1 GB) is put
            aside, and two of these are kept.
        log: Where there is no ``path``, its file gets the line per epoch if it holds JSON, and the lines of batches if
            its level is DEBUG.

    Example:
        >>> recorder = Recorder(consumer=0, path=None, log=None)
        >>> recorder.statistics()["batches"]
        0.0
    """

    def __init__(self, consumer: int, path: str | None, log: Log | None) -> None:
        self._book = _Book(consumer, None if path is None else OutFile(path, "benchmark_file", _MOST_NBYTES), log)
        self._pending = self._book.pending
        self._finalizer = weakref.finalize(self, _Book.close, self._book)

    def batch(self, record: BatchRecord | Late) -> None:
        """Notes one batch, in the order in which they are handed out."""
        self._pending.append(record)
        if len(self._pending) >= _FLUSH_AT:
            self._book.flush()
        elif self._book.writer is None and self._book.writes_batches:
            self._book.begin_to_write()

    def epoch(self, epoch: int, facts: dict[str, Any] | None = None) -> Summary:
        """Sums up and writes what is known of ``epoch``, whose batches were all noted (or that was left early).

        Args:
            epoch: Its number.
            facts: What else its line should say.
        """
        book = self._book
        summary = book.end_epoch(epoch)
        told = datetime.now(UTC).astimezone().isoformat(timespec="milliseconds")
        line = {
            "kind": "epoch",
            "run": book.run,
            "time": told,
            **line_of(book.consumer, epoch, summary),
            **(facts or {}),
        }
        if book.file is not None:
            book.file.write(json.dumps(line) + "\n")
        elif book.log is not None and book.log.keeps_fields:
            book.log.epoch(line)
        return summary

    def summary(self) -> tuple[int, Summary]:
        """The epoch that goes on, so far: its number, and what is known of it."""
        self._book.flush()
        return self._book.epoch_number, self._book.epoch.summary()

    def statistics(self) -> dict[str, float]:
        """Sums since the start, under flat names.

        ``wait_s`` is how long the consumer waited for data, ``busy_s`` how long it did something else between batches
        (so data waited for it); ``merge_s`` is how long finished batches lay ready, ``order_wait_s`` how long workers
        had nothing to do.
        """
        self._book.flush()
        run = self._book.whole_run()
        fields = [*TASKS.values(), "land_ns", "cpu_ns", "delay_ns"]
        times = {name.removesuffix("_ns") + "_s": run.total(name) / _NS for name in fields}
        index, slowest_s = next(iter(run.summary().slowest), (-1, 0.0))
        return {
            "epoch": float(self._book.epoch_number),
            "batches": float(run.batches),
            "samples": run.total("rows"),
            "bytes": run.total("nbytes"),
            **times,
            "slowest_sample_s": slowest_s,
            "slowest_sample_index": float(index),
        }

    def close(self) -> None:
        """Writes what is left and lets go of the file; may be called twice."""
        self._book.close()

    def __repr__(self) -> str:
        book = self._book
        to = book.file.path if book.file is not None else "log" if book.log is not None else "nowhere"
        return f"Recorder(consumer={book.consumer}, batches={book.batches}, to={str(to)!r})"


class _Book:
    """What a recorder has noted. Outlives it, so that what was noted last can still be written."""

    def __init__(self, consumer: int, file: OutFile | None, log: Log | None) -> None:
        self.run = int(time.time() * 1000)
        """Tells apart the lines of runs that are added to the same file."""
        self.consumer = consumer
        self.file = file
        self.log = log
        self.writes_batches = file is not None or (log is not None and log.takes_batches)
        self.pending: list[BatchRecord | Late] = []
        """Added to by the consumer's thread, without a lock; taken from its begin by who holds the lock."""
        self.epoch_number = 0
        self.epoch = Tally()
        self.writer: threading.Thread | None = None
        """Writes once a second, from the first batch on."""
        self._is_over = threading.Event()
        self._run = Tally()
        """All epochs before."""
        self._pid = os.getpid()
        self._lock = threading.RLock()  # reentrant for a signal handler that looks at statistics

    @property
    def batches(self) -> int:
        return self._run.batches + self.epoch.batches + len(self.pending)

    def begin_to_write(self) -> None:
        name = f"swift-recorder-c{self.consumer}"
        self.writer = threading.Thread(target=self._write_on, name=name, daemon=True)
        if not self._is_over.is_set():
            self.writer.start()

    def _write_on(self) -> None:
        while not self._is_over.wait(_FLUSH_EVERY_S):
            self.flush()

    def flush(self) -> None:
        """Counts and writes what is pending."""
        if self._lock._is_owned():  # type: ignore[attr-defined] # by this very thread, which a signal has interrupted
            return
        with self._lock:
            taken = self.pending[:]
            del self.pending[: len(taken)]
            if not taken:
                return
            records = [one.known() if isinstance(one, Late) else one for one in taken]
            self.epoch_number = records[-1].epoch
            self.epoch.add(records)
            if self.writes_batches:
                self._write(records)

    def _write(self, records: list[BatchRecord]) -> None:
        if self.file is not None:
            self.file.write("".join([_BATCH_LINE % (self.run, self.consumer, *record) for record in records]))
        elif self.log is not None:
            for record in records:
                self.log.batch({"run": self.run, **record._asdict()})

    def end_epoch(self, epoch: int) -> Summary:
        self.flush()
        with self._lock:
            summary = self.epoch.summary()
            self._run.absorb(self.epoch)
            self.epoch, self.epoch_number = Tally(), epoch
            return summary

    def whole_run(self) -> Tally:
        whole = Tally()
        with self._lock:
            whole.absorb(self._run)
            whole.absorb(self.epoch)
        return whole

    def close(self) -> None:
        """Writes what is left. Not in a forked child, whose copy of it is not its own to write."""
        if os.getpid() != self._pid:
            return
        self._is_over.set()
        writer = self.writer
        if writer is not None and writer.is_alive() and writer is not threading.current_thread():
            writer.join(_FLUSH_EVERY_S)
        self.flush()
        if self.file is not None:
            self.file.close()


def line_of(consumer: int, epoch: int, summary: Summary) -> dict[str, Any]:
    """An epoch's line, as it is written: the document's names, and more."""
    made_s, passed_s = summary.made_s, summary.seconds
    index, slowest_s = next(iter(summary.slowest), (-1, 0.0))
    return {
        "consumer": consumer,
        "epoch": epoch,
        "batches": summary.batches,
        "samples": summary.samples,
        "bytes": summary.nbytes,
        "seconds": round(passed_s, 6),
        "starved share": round(summary.starved_share, 6),
        **{task: _told(spread) for task, spread in summary.spreads.items()},
        # What the workers can make, and what the consumer did take: the smaller one says who is waited for.
        "injection": _rate(summary.batches * len(summary.workers), made_s),
        "consumption": _rate(summary.batches, passed_s),
        "workers": [
            {"worker": one.number, "batches": one.batches, "busy share": round(one.busy_share, 4)}
            for one in summary.workers
        ],
        "slowest sample": {"index": index, "ms": round(slowest_s * 1e3, 3)},
        "slowest samples": [{"index": one, "ms": round(took_s * 1e3, 3)} for one, took_s in summary.slowest],
    }


def _told(spread: Spread) -> dict[str, float]:
    percentiles = zip(PERCENTILES, spread.percentiles_s, strict=True)
    return {
        "total_s": round(spread.total_s, 6),
        "mean_ms": round(spread.mean_s * 1e3, 6),
        **{f"p{percent}_ms": round(seconds * 1e3, 6) for percent, seconds in percentiles},
        "max_ms": round(spread.max_s * 1e3, 6),
    }


def _rate(count: int, seconds: float) -> float | None:
    """Batches per second; none where the time was too short to tell."""
    return round(count / seconds, 3) if seconds > 0 else None
