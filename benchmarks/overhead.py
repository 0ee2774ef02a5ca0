"""Overhead: how many batches per second reach the training process when they hold next to nothing.

Measures: 128 floats and a label per sample, shuffled, batches of 32, 2 workers, a consumer that sums the labels. The
clock runs from the construction of the dataset and the loader on, over whole epochs: at least three, and at least eight
seconds. Ceilings: torch's DataLoader without workers (iterating in the training process itself), and signalling alone
(a bare ring of empty slots with one byte each way per batch, nothing fetched, nothing looked at).

Leaves out: data. What a loader does per byte is the question of `transport`.

Command: `python -m benchmarks.overhead`. The last table is `results/overhead.txt`.

Caveat: on two cores, two workers and a consumer compete. Signalling alone makes no batches: it bounds, nobody can
reach it.
"""

from __future__ import annotations

from typing import Any

from benchmarks import duel
from benchmarks.bare_ring import BareRing
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side, usual_cases
from benchmarks.sides import Work, build_in_process, build_swift, build_torch
from benchmarks.workloads import Floats

BATCH_SIZE = 32
EPOCH_BATCHES = 1024
SIGNALS_PER_EPOCH = 50_000


def weigh(batch: Any) -> tuple[int, int]:
    """Rows of the features, and the sum of the labels."""
    features, labels = batch
    return features.shape[0], int(labels.sum())


def work(settings: Settings) -> Work:
    """The workload."""
    return Work(Floats, {"count": settings.size(EPOCH_BATCHES) * BATCH_SIZE}, BATCH_SIZE, settings.seed)


def case_swift(settings: Settings) -> Result:
    """Ours."""
    return run_epochs(build_swift(work(settings)), weigh, settings).result()


def case_torch(settings: Settings, *, start_method: str = "fork", persistent: bool = False) -> Result:
    """Torch's."""
    build = build_torch(work(settings), start_method=start_method, persistent=persistent)
    return run_epochs(build, weigh, settings).result()


def case_in_process(settings: Settings) -> Result:
    """Torch's without workers."""
    return run_epochs(build_in_process(work(settings)), weigh, settings).result()


def case_signalling(settings: Settings) -> Result:
    """One byte each way per batch, two workers, four slots each."""

    def build() -> BareRing:
        return BareRing(None, shape=(BATCH_SIZE, 128), dtype="float32", batches=settings.size(SIGNALS_PER_EPOCH))

    found = run_epochs(build, lambda batch: (batch.shape[0], 0), settings).result()
    return {"batches_per_s": found["batches_per_s"], "samples_per_s": found["samples_per_s"]}


QUESTION = Question(
    name="overhead",
    title="Overhead: 128 floats and a label, batch 32, 2 workers",
    metric="batches_per_s",
    unit="batches/s",
    seconds=8.0,
    cases=(
        *usual_cases(case_swift, case_torch),
        Case("in_process", "torch, no workers", Side.CEILING, case_in_process),
        Case("signalling", "signalling alone", Side.CEILING, case_signalling),
    ),
    columns=(Column("samples_per_s", "samples/s"), Column("cpu_ms_per_batch", "CPU ms")),
    goals=(
        Goal("ours / torch fork", "swift", "torch_fork", at_least=10),
        Goal("ours / torch persistent", "swift", "torch_persistent", at_least=10),
        Goal("ours / torch spawn", "swift", "torch_spawn"),
        Goal("ours / no workers", "swift", "in_process"),
        Goal("ours / signalling alone", "swift", "signalling"),
    ),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
