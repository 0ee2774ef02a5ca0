"""Consumer's CPU: what a batch costs the training process itself, whose interpreter has better things to do.

Measures: CPU time of the consumer's process (all of its threads, user and kernel, `time.process_time`) per batch of
38.5 MB (256 uint8 images of 3x224x224), 2 workers, from the construction of the dataset and the loader on, over whole
epochs. The column "later" leaves out the first epoch, in which processes are started and memory is mapped. The
consumer asks for the shape and one element. The ceiling is a bare ring of warm slots with one byte each way per batch.

Leaves out: the workers' CPU, wall time, copying to a GPU. Samples are checked in an epoch of its own after the clock.

Command: `python -m benchmarks.consumer_cpu`. The last table is `results/consumer_cpu.txt`.

Caveat: ours goes through more batches in the same time, so the cost of its start is spread over more of them; "later"
is free of it on all sides. Torch's dataset is constructed before its clock, because ours is constructed in the workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks import duel
from benchmarks.bare_ring import BareRing
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side, usual_cases
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.transport import weigh as weigh_all
from benchmarks.workloads import IMAGE_SHAPE, MemoryImages

BATCH_SIZE = 256
EPOCH_BATCHES = 40


def weigh(batch: Any) -> tuple[int, int]:
    """Rows, and one element that is looked at (never more than a byte)."""
    return batch.shape[0], int(batch[0, 0, 0, 0]) >> 8


def work(settings: Settings) -> Work:
    """The workload."""
    return Work(MemoryImages, {"count": settings.size(EPOCH_BATCHES) * BATCH_SIZE}, BATCH_SIZE, settings.seed)


def case_swift(settings: Settings) -> Result:
    """Ours."""
    return run_epochs(build_swift(work(settings)), weigh, settings, check=weigh_all).result()


def case_torch(settings: Settings, *, start_method: str = "fork", persistent: bool = False) -> Result:
    """Torch's."""
    made = work(settings)
    dataset = MemoryImages(**made.dataset_kwargs)
    ready = replace(made, dataset_class=lambda: dataset, dataset_kwargs={})
    build = build_torch(ready, start_method=start_method, persistent=persistent)
    return run_epochs(build, weigh, settings, check=weigh_all).result()


def case_ceiling(settings: Settings) -> Result:
    """A bare ring. Its batches are not shuffled: batch k holds the samples from k * 256 on."""
    made = work(settings)
    dataset = MemoryImages(**made.dataset_kwargs)

    def fill(slot: Any, number: int) -> None:
        for place in range(BATCH_SIZE):
            slot[place] = dataset[(number * BATCH_SIZE + place) % len(dataset)]

    def build() -> BareRing:
        batches = settings.size(EPOCH_BATCHES)
        return BareRing(fill, shape=(BATCH_SIZE, *IMAGE_SHAPE), dtype="uint8", batches=batches)

    return run_epochs(build, weigh, settings, check=weigh_all).result()


QUESTION = Question(
    name="consumer_cpu",
    title="CPU time of the training process per batch of 38.5 MB, 2 workers",
    metric="cpu_ms_per_batch",
    unit="CPU ms",
    higher_is_better=False,
    seconds=8.0,
    cases=(
        *usual_cases(case_swift, case_torch),
        Case("ceiling", "bare ring of warm slots", Side.CEILING, case_ceiling),
    ),
    columns=(Column("later_cpu_ms_per_batch", "later"), Column("batches_per_s", "batches/s")),
    goals=(
        Goal("ours, CPU ms per batch", "swift", at_most=0.3),
        Goal("torch fork / ours", "torch_fork", "swift"),
        Goal("torch persistent / ours", "torch_persistent", "swift"),
        Goal("torch spawn / ours", "torch_spawn", "swift"),
    ),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
