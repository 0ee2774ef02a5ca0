"""Nested: samples that are dicts with a part of varying size, put together by the user's own collate function.

Measures: an image (uint8 3x64x64), 0 to 19 boxes, a caption; shuffled, batches of 32, 2 workers, a custom collate
function that stacks the images and keeps boxes and captions as lists. Once with torch tensors in the batch, as most
detection code has it, and once with numpy arrays, which suits torch's DataLoader better. The clock runs from the
construction of the dataset and the loader on, over whole epochs: at least three, and at least four seconds. The
ceiling is torch's DataLoader without workers.

Leaves out: decoding and augmentation; padding.

Command: `python -m benchmarks.nested`. The last table is `results/nested.txt`.

Caveat: torch sends each tensor through a file descriptor of its own, 33 per batch here; that is most of its time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks import duel
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side, usual_cases
from benchmarks.sides import Work, build_in_process, build_swift, build_torch
from benchmarks.torch_workloads import collate_scenes_to_tensors
from benchmarks.workloads import Scenes, collate_scenes

BATCH_SIZE = 32
EPOCH_BATCHES = 160


def weigh(batch: Any) -> tuple[int, int]:
    """Rows, and the sum of the images' first elements, the numbers of boxes and the lengths of the captions."""
    images = int(batch["image"][:, 0, 0, 0].sum())
    others = sum(map(len, batch["boxes"])) + sum(map(len, batch["text"]))
    return len(batch["image"]), images + others


def work(settings: Settings, *, arrays: bool = False) -> Work:
    """The workload."""
    count = settings.size(EPOCH_BATCHES) * BATCH_SIZE
    made = Work(Scenes, {"count": count}, BATCH_SIZE, settings.seed, collate_fn=collate_scenes_to_tensors)
    return replace(made, collate_fn=collate_scenes) if arrays else made


def case_swift(settings: Settings, *, arrays: bool = False) -> Result:
    """Ours."""
    return run_epochs(build_swift(work(settings, arrays=arrays)), weigh, settings).result()


def case_torch(
    settings: Settings, *, start_method: str = "fork", persistent: bool = False, arrays: bool = False
) -> Result:
    """Torch's."""
    build = build_torch(work(settings, arrays=arrays), start_method=start_method, persistent=persistent)
    return run_epochs(build, weigh, settings).result()


def case_in_process(settings: Settings) -> Result:
    """Torch's without workers."""
    return run_epochs(build_in_process(work(settings)), weigh, settings).result()


QUESTION = Question(
    name="nested",
    title="Nested: image, varying boxes, text; custom collate, batch 32, 2 workers",
    metric="samples_per_s",
    unit="samples/s",
    cases=(
        *usual_cases(case_swift, case_torch),
        Case("swift_arrays", "ours, numpy", Side.OURS, partial(case_swift, arrays=True), group="numpy"),
        Case("torch_fork_arrays", "torch, fork, numpy", Side.TORCH, partial(case_torch, arrays=True), group="numpy"),
        Case("in_process", "torch, no workers", Side.CEILING, case_in_process, group="ceiling"),
    ),
    columns=(Column("batches_per_s", "batches/s"), Column("first_three_samples_per_s", "3 epochs")),
    goals=(
        Goal("ours / torch fork", "swift", "torch_fork", at_least=6),
        Goal("ours / torch persistent", "swift", "torch_persistent", at_least=6),
        Goal("ours / torch spawn", "swift", "torch_spawn"),
        Goal("ours numpy / torch fork numpy", "swift_arrays", "torch_fork_arrays"),
        Goal("ours / no workers", "swift", "in_process"),
    ),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
