"""Transport: how many samples per second reach the training process when making them costs nothing.

Measures: uint8 images of 3x224x224 that are in memory already (256 distinct ones, so the source lies partly in the L3
cache), shuffled, batches of 256 (38.5 MB), 2 workers, a consumer that reads one byte of each sample. The clock runs
from the construction of the dataset and the loader on, over whole epochs: at least three, and at least eight seconds.
`--dtype float32`: the same with batches of 154 MB. The ceiling is two processes that stack the same samples into
shared memory slots that are warm already, with no consumer and no messages.

Leaves out: decoding, training, a GPU, a consumer that reads all of a batch (which costs all sides alike).

Command: `python -m benchmarks.transport [--dtype float32]`. The last table is `results/transport*.txt`.

Caveat: torch pays for fresh shared memory with each batch, so its figure depends on the kernel's page faults. Memory
bandwidth is shared by everything on the machine: only ratios within a run count.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks import duel
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side, usual_cases
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.warm_slots import Stacking
from benchmarks.workloads import IMAGE_SHAPE, MemoryImages

BATCH_SIZE = 256
EPOCH_BATCHES = {"uint8": 64, "float32": 16}


def weigh(batch: Any) -> tuple[int, int]:
    """Rows, and the sum of the first element of each."""
    return batch.shape[0], int(batch[:, 0, 0, 0].sum())


def sample_nbytes(dtype: str) -> int:
    """Bytes of one sample."""
    return int(np.prod(IMAGE_SHAPE)) * np.dtype(dtype).itemsize


def work(settings: Settings, dtype: str) -> Work:
    """The workload."""
    count = settings.size(EPOCH_BATCHES[dtype]) * BATCH_SIZE
    return Work(MemoryImages, {"count": count, "dtype": dtype}, BATCH_SIZE, settings.seed)


def case_swift(settings: Settings, dtype: str) -> Result:
    """Ours."""
    laps = run_epochs(build_swift(work(settings, dtype)), weigh, settings)
    return laps.result(sample_nbytes=sample_nbytes(dtype))


def case_torch(settings: Settings, *, dtype: str, start_method: str = "fork", persistent: bool = False) -> Result:
    """Torch's."""
    build = build_torch(work(settings, dtype), start_method=start_method, persistent=persistent)
    return run_epochs(build, weigh, settings).result(sample_nbytes=sample_nbytes(dtype))


def case_ceiling(settings: Settings, dtype: str) -> Result:
    """Two processes stacking into warm slots."""
    dataset = MemoryImages(settings.size(EPOCH_BATCHES[dtype]) * BATCH_SIZE, dtype=dtype)

    def fill(row: Any, index: int) -> None:
        row[...] = dataset[index]

    seconds = min(2.0, settings.seconds)
    rate = Stacking(fill, dataset[0], len(dataset), BATCH_SIZE, seconds).rate(processes=2)
    return {"samples_per_s": rate, "gb_per_s": rate * sample_nbytes(dtype) / 1e9}


def question(dtype: str, name: str) -> Question:
    """The question for a dtype."""
    megabytes = BATCH_SIZE * sample_nbytes(dtype) / 1e6
    torch = partial(case_torch, dtype=dtype)
    return Question(
        name=name,
        title=f"Transport: {dtype} 3x224x224 in memory, batch {BATCH_SIZE} ({megabytes:.1f} MB), 2 workers",
        metric="samples_per_s",
        unit="samples/s",
        seconds=8.0,
        variant=dtype,
        cases=(
            *usual_cases(partial(case_swift, dtype=dtype), torch),
            Case("ceiling", "two cores stacking, warm", Side.CEILING, partial(case_ceiling, dtype=dtype)),
        ),
        columns=(Column("gb_per_s", "GB/s"), Column("first_three_samples_per_s", "3 epochs")),
        goals=(
            Goal("ours / torch fork", "swift", "torch_fork", at_least=10),
            Goal("ours / torch persistent", "swift", "torch_persistent", at_least=10),
            Goal("ours / torch spawn", "swift", "torch_spawn"),
            Goal("ours / ceiling", "swift", "ceiling", at_least=0.6),
            Goal("torch fork / ceiling", "torch_fork", "ceiling"),
        ),
    )


QUESTIONS = (question("uint8", "transport"), question("float32", "transport_float32"))

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS, option="--dtype"))
