"""Drives a loader through whole epochs as a training loop would, and says what that took.

The clock starts before the dataset and the loader are constructed ("from the first call on") and stops with the last
batch of a whole epoch, so what was made ahead for a later epoch is paid for and not counted. Every side is driven by
this same loop. It does not know whose loader it drives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from benchmarks.question import Result, Settings

#: Looks at a batch lightly: how many samples it holds, and a sum that does not depend on their order.
Weigh = Callable[[Any], tuple[int, int]]


@dataclass(frozen=True)
class Lap:
    """One epoch: when its first and last batch were there, and what was in it."""

    first_at: float
    last_at: float
    cpu_at: float
    batches: int
    samples: int
    checksum: int


@dataclass(frozen=True)
class Laps:
    """All epochs of a run, with the clock and the consumer's CPU clock at the start."""

    started_at: float
    cpu_started_at: float
    laps: tuple[Lap, ...]
    #: An epoch after the clock that was weighed in full, where the counted ones were weighed less closely.
    checked: Lap | None = None

    def rate(self, lap_count: int | None = None) -> float:
        """Samples per second from the first call on, over all epochs or the first few."""
        laps = self.laps[:lap_count]
        return sum(lap.samples for lap in laps) / (laps[-1].last_at - self.started_at)

    def gaps_ms(self) -> list[float]:
        """From the last batch of each epoch to the first of the next."""
        return [
            (after.first_at - before.last_at) * 1e3 for before, after in zip(self.laps, self.laps[1:], strict=False)
        ]

    def result(self, *, sample_nbytes: int = 0, work: str = "") -> Result:
        """The run as a flat record. `work` names what was loaded, where a question has more than one workload."""
        batches = sum(lap.batches for lap in self.laps)
        rate = self.rate()
        gaps = self.gaps_ms()
        seen = self.checked or self.laps[0]
        cpu = self.laps[-1].cpu_at - self.cpu_started_at
        found: Result = {
            "samples_per_s": rate,
            "first_three_samples_per_s": self.rate(3),
            "batches_per_s": batches / (self.laps[-1].last_at - self.started_at),
            "first_batch_s": self.laps[0].first_at - self.started_at,
            "gap_ms": median(gaps) if gaps else None,
            "gap_mean_ms": mean(gaps) if gaps else None,
            "gap_worst_ms": max(gaps) if gaps else None,
            "cpu_ms_per_batch": cpu * 1e3 / batches,
            "seconds": self.laps[-1].last_at - self.started_at,
            "epochs": len(self.laps),
            "batches": batches,
            "samples_per_epoch": seen.samples,
            "checksum": seen.checksum,
            "work": work,
        }
        if len(self.laps) > 1:
            later = sum(lap.batches for lap in self.laps[1:])
            found["later_cpu_ms_per_batch"] = (self.laps[-1].cpu_at - self.laps[0].cpu_at) * 1e3 / later
        if sample_nbytes:
            found["gb_per_s"] = rate * sample_nbytes / 1e9
        return found


def run_epochs(
    build: Callable[[], Any], weigh: Weigh, settings: Settings, *, step_s: float = 0.0, check: Weigh | None = None
) -> Laps:
    """Construct a loader and iterate whole epochs until the settings' epochs and seconds are both over.

    Args:
        build: constructs the dataset and the loader, starts it if it must be, and returns it.
        weigh: what the consumer does with each batch.
        settings: how long.
        step_s: how long the consumer sleeps after each batch, as one that trains elsewhere would.
        check: looks closer, at one more epoch after the clock has stopped.
    """
    started_at, cpu_started_at = time.perf_counter(), time.process_time()
    loader = build()
    laps: list[Lap] = []
    while len(laps) < settings.epochs or laps[-1].last_at - started_at < settings.seconds:
        laps.append(run_epoch(iter(loader), weigh, step_s))
    checked = run_epoch(iter(loader), check, 0.0) if check is not None else None
    if hasattr(loader, "close"):
        loader.close()
    kinds = {(lap.samples, lap.checksum) for lap in laps}
    if checked is not None:
        kinds = {(lap.samples, 0) for lap in (*laps, checked)}
    if len(kinds) != 1:
        raise RuntimeError(f"epochs did not hold the same samples: (samples, checksum) were {sorted(kinds)}")
    return Laps(started_at, cpu_started_at, tuple(laps), checked)


def run_epoch(batches: Iterator[Any], weigh: Weigh, step_s: float) -> Lap:
    """One epoch."""
    now = time.perf_counter
    samples = checksum = count = 0
    first_at = last_at = 0.0
    for batch in batches:
        if not count:
            first_at = now()
        rows, value = weigh(batch)
        samples += rows
        checksum += value
        count += 1
        if step_s:
            time.sleep(step_s)
        last_at = now()
    return Lap(first_at, last_at, time.process_time(), count, samples, checksum)
