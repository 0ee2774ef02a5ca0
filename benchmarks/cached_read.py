"""Reading what is kept: samples of a warm cache on disk, against the same samples as files that `np.load` reads.

Measures: uint8 images, kept since the epoch before and in the page cache; shuffled, batches of 256, 2 workers, a
consumer that reads one byte of each sample. `--samples fixed`: 3x224x224 each, 38.5 MB per batch. `--samples ragged`:
64 to 223 rows, 24 MB per batch on average, given out as lists of tensors. Files and cache are written before the clock
starts; it then runs from the construction of the dataset and the loader on, over whole epochs: at least three, and at
least five seconds.
The ceiling is two processes that stack samples that are in memory already into shared memory slots that are warm, with
no consumer, no messages and no checksums.

Leaves out: a disk slower than the page cache (then the disk decides), training, a GPU.

Command: `python -m benchmarks.cached_read [--samples ragged]`. The last table is `results/cached_read*.txt`.

Caveat: memory bandwidth is shared by everything on the machine: only ratios within a run count.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import duel
from benchmarks.kept_workloads import Files, Images, as_list, save
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.torch_workloads import as_tensors
from benchmarks.transport import sample_nbytes
from benchmarks.warm_slots import Stacking
from benchmarks.workloads import MemoryImages

BATCH_SIZE = 256
EPOCH_BATCHES = 16


def weigh(batch: Any) -> tuple[int, int]:
    """Rows, and the sum of the first element of each."""
    if isinstance(batch, list):
        return len(batch), sum(int(image[0, 0, 0]) for image in batch)
    return batch.shape[0], int(batch[:, 0, 0, 0].sum())


def images(settings: Settings, *, ragged: bool) -> dict[str, Any]:
    """The arguments of the samples."""
    return {"count": settings.size(EPOCH_BATCHES) * BATCH_SIZE, "ragged": ragged}


def case_swift(settings: Settings, *, ragged: bool) -> Result:
    """Ours, with a cache that an epoch before the clock has filled."""
    with tempfile.TemporaryDirectory() as folder:
        ours = {"cache_setting": {"prefix": f"{folder}/kept"}, **({"ragged": "list"} if ragged else {})}
        work = Work(Images, images(settings, ragged=ragged), BATCH_SIZE, settings.seed, ours=ours)
        with build_swift(work)() as loader:
            for _ in loader:
                pass
        return run_epochs(build_swift(work), weigh, settings).result(sample_nbytes=sample_nbytes("uint8"))


def case_torch(settings: Settings, *, ragged: bool, persistent: bool = False, arrays: bool = False) -> Result:
    """Torch's, with a dataset that reads files; ragged ones as lists of tensors, as ours, or of arrays."""
    given = images(settings, ragged=ragged)
    with tempfile.TemporaryDirectory() as folder:
        save(Images(**given), Path(folder))
        work = Work(Files, {"folder": folder, "count": given["count"]}, BATCH_SIZE, settings.seed)
        work = replace(work, collate_fn=(as_list if arrays else as_tensors) if ragged else None)
        build = build_torch(work, persistent=persistent)
        return run_epochs(build, weigh, settings).result(sample_nbytes=sample_nbytes("uint8"))


def case_ceiling(settings: Settings, *, ragged: bool) -> Result:
    """Two processes stacking samples of memory into warm slots."""
    dataset = MemoryImages(settings.size(EPOCH_BATCHES) * BATCH_SIZE)
    images = Images(len(dataset), ragged=ragged)
    pool = [images[index] for index in range(BATCH_SIZE)]

    def fill(row: Any, index: int) -> None:
        sample = pool[index % BATCH_SIZE]
        row[:, : sample.shape[1]] = sample

    rate = Stacking(fill, dataset[0], len(dataset), BATCH_SIZE, min(2.0, settings.seconds)).rate(processes=2)
    return {"samples_per_s": rate, "gb_per_s": rate * sample_nbytes("uint8") / 1e9}


def question(samples: str, name: str, what: str) -> Question:
    """The question for samples of one size, or of several."""
    ragged = samples == "ragged"
    ceiling = Case("ceiling", "two cores stacking, warm", Side.CEILING, partial(case_ceiling, ragged=ragged))
    arrays = Case(
        "torch_arrays", "torch, persistent, arrays", Side.TORCH,
        partial(case_torch, ragged=True, persistent=True, arrays=True),
    )  # fmt: skip
    against_arrays = Goal("ours / torch persistent, arrays", "swift", "torch_arrays")
    against_ceiling = Goal("ours / ceiling", "swift", "ceiling", at_least=0.4)
    return Question(
        name=name,
        title=f"Reading what is kept: uint8 {what}, batch {BATCH_SIZE}, 2 workers",
        metric="samples_per_s",
        unit="samples/s",
        seconds=5.0,
        variant=samples,
        cases=(
            Case("swift", "ours, cache", Side.OURS, partial(case_swift, ragged=ragged)),
            Case("torch_fork", "torch, fork, np.load", Side.TORCH, partial(case_torch, ragged=ragged)),
            Case(
                "torch_persistent", "torch, persistent, np.load", Side.TORCH,
                partial(case_torch, ragged=ragged, persistent=True),
            ),
            *((arrays,) if ragged else ()),
            ceiling,
        ),
        columns=(Column("batches_per_s", "batches/s"), Column("first_three_samples_per_s", "3 epochs")),
        goals=(
            Goal("ours / torch fork, np.load", "swift", "torch_fork", at_least=5),
            Goal("ours / torch persistent, np.load", "swift", "torch_persistent", at_least=5),
            (against_arrays if ragged else against_ceiling),
        ),
    )  # fmt: skip


QUESTIONS = (
    question("fixed", "cached_read", "3x224x224"),
    question("ragged", "cached_read_ragged", "3 x 64 to 223 x 224"),
)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS, option="--samples"))
