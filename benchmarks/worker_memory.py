"""Workers' memory: what a worker has for itself beyond its dataset, which does not use torch, in a script that does.

Measures: private memory (USS, from the kernel's smaps_rollup) of each of 2 workers after three epochs of 128 floats
and a label in batches of 32, less what the dataset's arrays take; the mean of the workers, in MB. This file is the
training script: it imports torch at its top. "In the script": the dataset's class is defined here too, not in a
module. Torch's fork shares all pages with the script until somebody writes to them; its dataset is not subtracted.
The ceiling is two workers forked from a process with nothing but numpy.

Leaves out: shared memory (slots, and pages that a fork shares); processes that are not workers: their private memory
is the column "others".

Command: `python -m benchmarks.worker_memory`. The last table is `results/worker_memory.txt`.

Caveat: workers are the descendants that have no children. A fork's private memory grows as reference counts are
written to; three epochs are a young worker.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
import torch

from benchmarks import duel, machine
from benchmarks.overhead import weigh
from benchmarks.private_memory import family, private_mb
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.workloads import Floats

BATCH_SIZE = 32
WORKERS = 2
EPOCH_BATCHES = 256


class ScriptFloats:
    """`Floats`, defined in the training script itself."""

    def __init__(self, count: int) -> None:
        self.features = np.random.default_rng(0).random((count, 128), dtype=np.float32)
        self.labels = [index % 1000 for index in range(count)]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.features[index], self.labels[index]


def work(settings: Settings, dataset_class: Callable[..., Any] = Floats) -> Work:
    """The workload."""
    return Work(dataset_class, {"count": settings.size(EPOCH_BATCHES) * BATCH_SIZE}, BATCH_SIZE, settings.seed, WORKERS)


def measure(build: Callable[[], Any], settings: Settings, *, owned: bool = True) -> Result:
    """Iterate some epochs, then weigh the workers in the next. `owned`: each has its dataset for itself."""
    loader = build()
    samples = checksum = 0
    for epoch in range(3):
        for batch in loader:
            rows, value = weigh(batch)
            if epoch == 0:
                samples, checksum = samples + rows, checksum + value
    running = iter(loader)
    next(running)
    workers, others = family()
    if len(workers) != WORKERS:
        names = ", ".join(f"{process.name()} ({' '.join(process.cmdline())[:60]})" for process in [*workers, *others])
        raise RuntimeError(f"{len(workers)} descendants look like workers, {WORKERS} were expected: {names}")
    private = [private_mb(process.pid) for process in workers]
    dataset_mb = Floats(settings.size(EPOCH_BATCHES) * BATCH_SIZE).nbytes / 1e6 if owned else 0.0
    found: Result = {
        "beyond_dataset_mb": mean(private) - dataset_mb,
        "private_mb": mean(private),
        "others_mb": sum(private_mb(process.pid) for process in others),
        "dataset_mb": dataset_mb,
        "has_torch": torch.__version__,
        "samples_per_epoch": samples,
        "checksum": checksum,
    }
    if hasattr(loader, "close"):
        loader.close()
    return found


def case_swift(settings: Settings, dataset_class: Callable[..., Any] = Floats) -> Result:
    """Ours."""
    return measure(build_swift(work(settings, dataset_class)), settings)


def case_torch(settings: Settings, start_method: str) -> Result:
    """Torch's, persistent so that they are still there to be weighed."""
    build = build_torch(work(settings), start_method=start_method, persistent=True)
    return measure(build, settings, owned=start_method == "spawn")


def case_ceiling(settings: Settings) -> Result:
    """Workers with nothing but numpy and the dataset."""
    count = settings.size(EPOCH_BATCHES) * BATCH_SIZE
    words = [sys.executable, "-m", "benchmarks.lean_worker", str(count)]
    done = subprocess.run(words, cwd=machine.ROOT, capture_output=True, text=True, check=True)
    private = mean(json.loads(done.stdout))
    return {"private_mb": private, "beyond_dataset_mb": private - Floats(count).nbytes / 1e6}


QUESTION = Question(
    name="worker_memory",
    title="Private memory of a worker without torch, in a script that imports torch",
    metric="beyond_dataset_mb",
    unit="MB",
    higher_is_better=False,
    cases=(
        Case("swift", "ours", Side.OURS, case_swift),
        Case("swift_script", "ours, dataset in the script", Side.OURS, partial(case_swift, dataset_class=ScriptFloats)),
        Case("torch_spawn", "torch, spawn", Side.TORCH, partial(case_torch, start_method="spawn")),
        Case("torch_fork", "torch, fork", Side.TORCH, partial(case_torch, start_method="fork")),
        Case("ceiling", "numpy and nothing else", Side.CEILING, case_ceiling),
    ),
    columns=(Column("private_mb", "all"), Column("others_mb", "others")),
    goals=(
        Goal("ours beyond dataset, MB", "swift", at_most=15),
        Goal("ours, in the script, MB", "swift_script", at_most=15),
        Goal("torch spawn / ours", "torch_spawn", "swift"),
    ),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
