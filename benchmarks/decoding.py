"""Decoding: JPEG images with the usual augmentation, where the workers' CPU time is what there is to save.

Measures: 400x400 JPEG files in memory (smooth textures, about 30 kB), decoded by Pillow, cropped at random, resized to
224, flipped at random, float32; shuffled, batches of 64 (38.5 MB), 2 workers. The clock runs from the construction of
the dataset and the loader on, over whole epochs with their starts: at least three, and at least three seconds.
Ceilings: torch's DataLoader without workers, times two; and two processes that decode into shared memory that is warm
already, with a malloc that keeps its memory.

Leaves out: reading files, a training that competes for the cores.

Command: `python -m benchmarks.decoding`. The last table is `results/decoding.txt`.

Caveat: the images are synthetic and all of one size; a decoder faster than Pillow would make the loader's own share
larger on every side.
"""

from __future__ import annotations

from typing import Any

from benchmarks import duel
from benchmarks.jpeg_workload import JpegImages, jpeg_files
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side, usual_cases
from benchmarks.sides import Work, build_in_process, build_swift, build_torch
from benchmarks.warm_slots import Stacking

BATCH_SIZE = 64
EPOCH_BATCHES = 16
DISTINCT = 64


def weigh(batch: Any) -> tuple[int, int]:
    """Rows of the pixels, and the sum of the labels (the pixels are random); one pixel is read."""
    pixels, labels = batch
    if not 0.0 <= float(pixels[0, 0, 0, 0]) <= 1.0:
        raise ValueError(f"a pixel is {float(pixels[0, 0, 0, 0])}")
    return pixels.shape[0], int(labels.sum())


def work(settings: Settings) -> Work:
    """The workload. The files are made here, before the clock starts: they stand for a disk."""
    keywords = {"files": jpeg_files(DISTINCT), "count": settings.size(EPOCH_BATCHES) * BATCH_SIZE}
    return Work(JpegImages, keywords, BATCH_SIZE, settings.seed)


def case_swift(settings: Settings) -> Result:
    """Ours."""
    return run_epochs(build_swift(work(settings)), weigh, settings).result()


def case_torch(settings: Settings, *, start_method: str = "fork", persistent: bool = False) -> Result:
    """Torch's."""
    build = build_torch(work(settings), start_method=start_method, persistent=persistent)
    return run_epochs(build, weigh, settings).result()


def case_serial_twice(settings: Settings) -> Result:
    """Torch's without workers, times two."""
    found = run_epochs(build_in_process(work(settings)), weigh, settings).result()
    return {**found, "serial_samples_per_s": found["samples_per_s"], "samples_per_s": 2 * found["samples_per_s"]}


def case_warm(settings: Settings) -> Result:
    """Two processes decoding into warm slots."""
    dataset = JpegImages(**work(settings).dataset_kwargs)

    def fill(row: Any, index: int) -> None:
        row[...] = dataset[index][0]

    seconds = min(2.0, settings.seconds)
    return {"samples_per_s": Stacking(fill, dataset[0][0], len(dataset), BATCH_SIZE, seconds).rate(processes=2)}


QUESTION = Question(
    name="decoding",
    title="Decoding: 400x400 JPEG, Pillow, crop, 224, flip, float32, batch 64, 2 workers",
    metric="samples_per_s",
    seconds=3.0,
    unit="samples/s",
    cases=(
        *usual_cases(case_swift, case_torch),
        Case("serial_twice", "torch, no workers, x 2", Side.CEILING, case_serial_twice),
        Case("warm", "two cores, warm memory", Side.CEILING, case_warm),
    ),
    columns=(Column("first_three_samples_per_s", "3 epochs"), Column("first_batch_s", "first s")),
    goals=(
        Goal("ours / torch fork", "swift", "torch_fork", at_least=1.4),
        Goal("ours / torch persistent", "swift", "torch_persistent", at_least=1.4),
        Goal("ours / torch spawn", "swift", "torch_spawn"),
        Goal("ours / 2 x serial", "swift", "serial_twice"),
        Goal("ours / warm memory", "swift", "warm"),
        Goal("torch fork / 2 x serial", "torch_fork", "serial_twice"),
        Goal("warm memory / torch fork", "warm", "torch_fork"),
    ),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
