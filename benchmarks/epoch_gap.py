"""Epoch gap: how long the consumer waits between the last batch of an epoch and the first of the next.

Measures: uint8 images of 3x224x224, batches of 64 (9.6 MB), 40 batches per epoch, 2 workers; the median over the gaps
of a run, in ms (mean and worst beside it), from having looked at the last batch until the next epoch's first is there,
the end of the old iterator included. First with a consumer that asks for the next batch at once, so that every side is
as far behind as it can be; then with one that is busy elsewhere for 10 ms per batch, as a trainer with a GPU is. The
ceiling is a loop without a loader that makes the batch in place: the time of one batch.

Leaves out: validation between epochs, `set_epoch`, leaving an epoch early.

Command: `python -m benchmarks.epoch_gap`. The last table is `results/epoch_gap.txt`.

Caveat: torch's spawn runs in the first round only. The mean tells whether a low median hides a few long gaps. For an
idle consumer a gap is never shorter than the loader's time for a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks import duel
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side, usual_cases
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.transport import weigh
from benchmarks.warm_slots import shared_array
from benchmarks.workloads import IMAGE_SHAPE, MemoryImages

BATCH_SIZE = 64
EPOCH_BATCHES = 40
STEP_S = 0.01


def work(settings: Settings) -> Work:
    """The workload."""
    return Work(MemoryImages, {"count": settings.size(EPOCH_BATCHES) * BATCH_SIZE}, BATCH_SIZE, settings.seed)


def case_swift(settings: Settings, step_s: float = 0.0) -> Result:
    """Ours."""
    return run_epochs(build_swift(work(settings)), weigh, at_least_two(settings), step_s=step_s).result()


def case_torch(
    settings: Settings, *, start_method: str = "fork", persistent: bool = False, step_s: float = 0.0
) -> Result:
    """Torch's."""
    build = build_torch(work(settings), start_method=start_method, persistent=persistent)
    return run_epochs(build, weigh, at_least_two(settings), step_s=step_s).result()


def at_least_two(settings: Settings) -> Settings:
    """A gap needs two epochs, even in a smoke run."""
    return replace(settings, epochs=max(2, settings.epochs))


class InPlace:
    """No loader: one warm slot, filled again for each batch."""

    def __init__(self, dataset: MemoryImages, seed: int) -> None:
        self.dataset = dataset
        self.rng = np.random.default_rng(seed)
        self.slot = shared_array((BATCH_SIZE, *IMAGE_SHAPE), "uint8")

    def __iter__(self) -> Iterator[Any]:
        order = self.rng.permutation(len(self.dataset)).tolist()
        for start in range(0, len(order), BATCH_SIZE):
            for place, index in enumerate(order[start : start + BATCH_SIZE]):
                self.slot[place] = self.dataset[index]
            yield self.slot


def case_ceiling(settings: Settings) -> Result:
    """No loader, no workers."""
    build = partial(InPlace, MemoryImages(**work(settings).dataset_kwargs), settings.seed)
    return run_epochs(build, weigh, at_least_two(settings)).result()


BUSY = partial(case_torch, step_s=STEP_S)

QUESTION = Question(
    name="epoch_gap",
    title="Gap from the last batch of an epoch to the first of the next, 2 workers",
    metric="gap_ms",
    unit="ms",
    higher_is_better=False,
    seconds=3.0,
    cases=(
        *usual_cases(case_swift, case_torch),
        Case("swift_busy", "ours, busy 10 ms", Side.OURS, partial(case_swift, step_s=STEP_S), group="busy"),
        Case("torch_fork_busy", "torch, fork, busy 10 ms", Side.TORCH, BUSY, group="busy"),
        Case(
            "torch_persistent_busy",
            "torch, persistent, busy 10 ms",
            Side.TORCH,
            partial(BUSY, persistent=True),
            group="busy",
        ),
        Case("ceiling", "batch made in place", Side.CEILING, case_ceiling, group="ceiling"),
    ),
    columns=(Column("gap_mean_ms", "mean"), Column("gap_worst_ms", "worst")),
    goals=(
        Goal("ours, ms", "swift", at_most=2),
        Goal("ours busy 10 ms, ms", "swift_busy", at_most=2),
        Goal("torch fork / ours", "torch_fork", "swift"),
        Goal("torch persistent / ours", "torch_persistent", "swift"),
        Goal("torch spawn / ours", "torch_spawn", "swift"),
    ),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
