"""Waiting: samples that come from somewhere slow, so that workers wait side by side and CPU does not matter.

Measures: 5 ms of sleep per sample, shuffled, batches of 16, 8 workers; and ours with `worker_threads=4`, which has 32
samples under way. The clock runs from the construction of the dataset and the loader on, over whole epochs: at least
three, and at least five seconds. The ceiling is what one plain loop reaches, times 8 (and times 32).

Leaves out: bandwidth and latency that grow with load, as those of a real store do.

Command: `python -m benchmarks.waiting`. The last table is `results/waiting.txt`.

Caveat: starting 8 workers is inside the clock, so a short run is dominated by it; torch's spawn is shown with
persistent workers only, because it would pay seconds for each epoch otherwise.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from benchmarks import duel
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.workloads import Waiting

BATCH_SIZE = 16
EPOCH_BATCHES = 256
WORKERS = 8
THREADS = 4
SERIAL_SAMPLES = 120


def weigh(batch: Any) -> tuple[int, int]:
    """Rows, and the sum of the indices."""
    return batch.shape[0], int(batch.sum())


def work(settings: Settings, threads: int = 1) -> Work:
    """The workload; with threads, as much more of it as it goes faster."""
    keywords = {"count": settings.size(EPOCH_BATCHES) * BATCH_SIZE * threads}
    ours = {"worker_threads": threads} if threads > 1 else {}
    return Work(Waiting, keywords, BATCH_SIZE, settings.seed, WORKERS, ours=ours)


def case_swift(settings: Settings, threads: int = 1) -> Result:
    """Ours."""
    return run_epochs(build_swift(work(settings, threads)), weigh, settings).result()


def case_torch(settings: Settings, *, start_method: str = "fork", persistent: bool = False) -> Result:
    """Torch's."""
    build = build_torch(work(settings), start_method=start_method, persistent=persistent)
    return run_epochs(build, weigh, settings).result()


def case_serial(settings: Settings, times: int) -> Result:
    """One plain loop over some samples, times so many."""
    dataset = Waiting(**work(settings).dataset_kwargs)
    began = time.perf_counter()
    count = settings.size(SERIAL_SAMPLES)
    for index in range(count):
        dataset[index]
    serial = count / (time.perf_counter() - began)
    return {"samples_per_s": serial * times, "serial_samples_per_s": serial}


SPAWN = partial(case_torch, start_method="spawn", persistent=True)

QUESTION = Question(
    name="waiting",
    title="Waiting: 5 ms of sleep per sample, batch 16, 8 workers",
    metric="samples_per_s",
    seconds=5.0,
    unit="samples/s",
    cases=(
        Case("swift", "ours", Side.OURS, case_swift),
        Case("torch_fork", "torch, fork", Side.TORCH, case_torch),
        Case("torch_persistent", "torch, fork, persistent", Side.TORCH, partial(case_torch, persistent=True)),
        Case("torch_spawn_persistent", "torch, spawn, persistent", Side.TORCH, SPAWN, rounds=1),
        Case("serial_8", "one loop, x 8", Side.CEILING, partial(case_serial, times=WORKERS)),
        Case(
            "swift_threads", "ours, worker_threads=4", Side.OURS, partial(case_swift, threads=THREADS), group="threads"
        ),
        Case(
            "serial_32", "one loop, x 32", Side.CEILING, partial(case_serial, times=WORKERS * THREADS), group="threads"
        ),
    ),
    columns=(Column("first_three_samples_per_s", "3 epochs"), Column("first_batch_s", "first s")),
    goals=(
        Goal("ours / 8 x serial", "swift", "serial_8", at_least=0.95),
        Goal("ours 4 threads / 32 x serial", "swift_threads", "serial_32", at_least=0.95),
        Goal("torch fork / 8 x serial", "torch_fork", "serial_8"),
        Goal("torch persistent / 8 x serial", "torch_persistent", "serial_8"),
        Goal("ours / torch fork", "swift", "torch_fork"),
    ),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
