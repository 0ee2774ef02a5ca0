"""How long a sample takes, and what follows: how many workers, and whether threads would help."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from swift_loader.telemetry import words
from swift_loader.testing.lab import Lab
from swift_loader.testing.report import Finding
from swift_loader.testing.walk import Blocked

NAME = "speed"
_STEP_S = 0.1
_MUCH_WAITING = 0.5
_WORTH_A_THREAD_S = 0.5e-3


def check(lab: Lab) -> Iterator[Finding]:
    """Times samples in a worker that does nothing else."""
    seen = [one for one in lab.closely().seen if one.failure is None][1:]  # the first is slow for reasons of its own
    if not seen:
        raise Blocked("no sample came")
    times = sorted(one.wall_ns / 1e9 for one in seen)
    median, p95 = statistics.median(times), times[min(len(times) - 1, math.ceil(0.95 * len(times)))]
    slowest = max(seen, key=lambda one: one.wall_ns)
    total = sum(times)
    waiting = max(0.0, 1 - sum(one.cpu_ns for one in seen) / 1e9 / max(total, 1e-9))
    size = lab.subject.batch_size
    batch_s = size * total / len(times)
    figures = {
        "median_s": median, "p95_s": p95, "slowest_s": times[-1], "waiting_share": waiting, "batch_s": batch_s,
    }  # fmt: skip
    text = (
        f"{words.seconds(median)} a sample, 95 % below {words.seconds(p95)}, slowest {words.seconds(times[-1])} "
        f"(sample {slowest.index}); a batch of {size} takes a worker {words.seconds(batch_s)}"
    )
    if batch_s > _STEP_S / 2:
        text += f", so steps of {words.seconds(_STEP_S)} need {_workers(batch_s / _STEP_S)}"
    if waiting > _MUCH_WAITING and median > _WORTH_A_THREAD_S:
        yield Finding(
            NAME, "advice", f"{text}. It waits for {100 * waiting:.0f} % of the time",
            "worker_threads=8 would have eight samples wait at the same time, in each worker", figures=figures,
        )  # fmt: skip
    elif p95 > 0.01 and times[-1] > 20 * median and times[-1] * 4 > batch_s:
        yield Finding(
            NAME, "advice", f"{text}. One sample takes as long as a good part of a batch",
            "more workers and a longer data_queue_size hide such samples, in_order=False does not wait for them",
            figures=figures,
        )  # fmt: skip
    else:
        yield Finding(NAME, "ok", text, figures=figures)


def _workers(share: float) -> str:
    count = math.ceil(share)
    return f"{count} worker{'s' if count > 1 else ''}"
