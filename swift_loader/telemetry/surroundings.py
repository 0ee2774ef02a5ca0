"""What is measured once an epoch, around the batches: the CPU time of this process, and what others leave of the cores.

Read from the kernel's own counts, at an epoch's begin and end. Where a system has no such counts, nothing is known.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from time import perf_counter_ns, process_time_ns
from typing import Self

from swift_loader.host.cores import allowed, usable
from swift_loader.host.procfs import read

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
#: Of a line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. What the host takes is gone too.
_IDLE_COLUMNS = (3, 4)
_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Moment:
    """The counts at one moment."""

    at_ns: int
    process_cpu_ns: int
    used_s: float | None
    """CPU time used by everybody, on the cores that this process may run on."""

    @classmethod
    def now(cls) -> Self:
        return cls(perf_counter_ns(), process_time_ns(), _used_s())


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What lay between two moments."""

    seconds: float
    consumer_cpu_s: float
    """CPU time of this process, which is the consumer's, all threads together."""
    used_s: float | None
    """CPU time of everybody; None where the kernel does not say."""
    cores: float
    """How many there are for this process, by affinity and quota."""

    @classmethod
    def between(cls, first: Moment, last: Moment) -> Self:
        known = first.used_s is not None and last.used_s is not None
        return cls(
            seconds=(last.at_ns - first.at_ns) / 1e9,
            consumer_cpu_s=(last.process_cpu_ns - first.process_cpu_ns) / 1e9,
            used_s=max(0.0, (last.used_s or 0.0) - (first.used_s or 0.0)) if known else None,
            cores=usable(),
        )

    def cores_of_others(self, workers_cpu_s: float) -> float:
        """How many cores others used, on average."""
        if self.used_s is None or self.seconds <= 0:
            return 0.0
        return max(0.0, self.used_s - workers_cpu_s - self.consumer_cpu_s) / self.seconds


def _used_s() -> float | None:
    try:
        lines = read("/proc/stat", 1 << 20).split(b"\nintr", 1)[0].splitlines()[1:]
        mine, ticks = allowed(), 0
        for line in lines:
            name, *words = line.split()
            if int(name[3:]) in mine:
                counts = [int(word) for word in words[:_COLUMNS]]
                ticks += sum(counts) - sum(counts[column] for column in _IDLE_COLUMNS)
    except (OSError, ValueError, IndexError):
        return None
    return ticks / _TICKS_PER_S
