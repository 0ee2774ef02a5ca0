"""Memory: what a training script and all the processes of its loader hold, at most and while it goes on evenly.

Measures: proportional set size (PSS, from the kernel's smaps_rollup: pages that several share are divided among them)
of the training process and all below it, looked at every 50 ms from the moment at which the loader is built. An epoch
as fast as it goes, then one with a step for each batch that leaves the workers time to fill all queues; "steady" is the
median of the second one. Default settings, 2 workers, one consumer that holds a batch until it has the next one. Three
loads: `--load images`: batches of 38.5 MB (uint8 3x224x224, 256 of them, of 8 arrays in memory); `--load floats`: 128
floats and a label, batches of 32; `--load jpeg`: 400x400 JPEG by Pillow, crop, 224, float32, batches of 64 (38.5 MB).

The ceiling is torch's DataLoader without workers: the script itself, and one batch.

Leaves out: a model, a GPU (page locks count as memory of the trainer), memory of the kernel (sockets, page tables).

Command: `python -m benchmarks.memory [--load floats]`. The last tables are `results/memory*.txt`.

Caveat: looked at by a thread of the training process, which sleeps in between: a peak of a few milliseconds may be
missed. Torch's processes are forked anew for the second epoch, so its peak holds both, if they overlap.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks import duel
from benchmarks.apart import below
from benchmarks.jpeg_workload import JpegImages, jpeg_files
from benchmarks.private_memory import shared_out_mb
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.sides import Work, build_in_process, build_swift, build_torch
from benchmarks.workloads import Floats, MemoryImages

EPOCH_BATCHES = 64
_EVERY_S = 0.05
DISTINCT = 8


class Scale:
    """Weighs this process and all below it, again and again, until it is told to stop."""

    def __init__(self) -> None:
        self.all: list[float] = []
        self.trainer: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scale", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self.all.append(shared_out_mb([os.getpid(), *below()]))
            self.trainer.append(shared_out_mb([os.getpid()]))
            if self._stop.wait(_EVERY_S):
                return

    def end(self) -> None:
        """Weighs no more."""
        self._stop.set()
        self._thread.join()


def images(settings: Settings) -> Work:
    """Large batches."""
    count = settings.size(EPOCH_BATCHES) * 256
    return Work(MemoryImages, {"count": count, "distinct": DISTINCT}, 256, settings.seed)


def floats(settings: Settings) -> Work:
    """Tiny batches."""
    return Work(Floats, {"count": settings.size(EPOCH_BATCHES) * 32}, 32, settings.seed)


def jpeg(settings: Settings) -> Work:
    """Batches that take long to make."""
    keywords = {"files": jpeg_files(DISTINCT), "count": settings.size(EPOCH_BATCHES // 2) * 64}
    return Work(JpegImages, keywords, 64, settings.seed)


#: What the consumer does with a batch in the second epoch takes longer than what two workers need for it.
STEP_S = {images: 0.04, floats: 0.01, jpeg: 0.15}


def weigh_all(build: Callable[[], Any], step_s: float) -> Result:
    """Two epochs, weighed."""
    scale = Scale()
    loader = build()
    rows = _epoch(loader, 0.0)
    begun = len(scale.trainer)
    if _epoch(loader, step_s) != rows:
        raise RuntimeError("epochs did not hold as many samples")
    ended = len(scale.trainer)
    scale.end()
    if hasattr(loader, "close"):
        loader.close()
    return {
        "peak_mb": max(scale.all),
        "steady_mb": median(scale.all[begun:ended]),
        "trainer_mb": median(scale.trainer[begun:ended]),
        "samples_per_epoch": rows,
        "checksum": 0,
    }


def _epoch(loader: Any, step_s: float) -> int:
    rows = 0
    for batch in loader:
        rows += len(batch[0] if isinstance(batch, list | tuple) else batch)
        time.sleep(step_s)
    return rows


def case_swift(settings: Settings, load: Callable[[Settings], Work], **ours: Any) -> Result:
    """Ours."""
    work = load(settings)
    work.ours.update(ours)
    return weigh_all(build_swift(work), STEP_S[load])


def case_torch(settings: Settings, load: Callable[[Settings], Work]) -> Result:
    """Torch's."""
    return weigh_all(build_torch(load(settings)), STEP_S[load])


def case_in_process(settings: Settings, load: Callable[[Settings], Work]) -> Result:
    """Torch's without workers: one process, one batch."""
    return weigh_all(build_in_process(load(settings)), STEP_S[load])


def question(load: Callable[[Settings], Work], name: str, title: str, at_most: float) -> Question:
    """The question for one load."""
    forked = partial(case_swift, load=load, start_method="fork", allow_fork=True)
    return Question(
        name=name,
        title=f"Memory of all processes: {title}, 2 workers",
        metric="peak_mb",
        unit="MB",
        higher_is_better=False,
        variant=load.__name__,
        cases=(
            Case("swift", "ours", Side.OURS, partial(case_swift, load=load)),
            Case("swift_forked", "ours, forked from the script", Side.OURS, forked),
            Case("torch_fork", "torch, fork", Side.TORCH, partial(case_torch, load=load)),
            Case("in_process", "torch, no workers", Side.CEILING, partial(case_in_process, load=load)),
        ),
        columns=(Column("steady_mb", "steady"), Column("trainer_mb", "trainer")),
        goals=(
            Goal("ours / torch", "swift", "torch_fork", at_most=at_most),
            Goal("ours, forked / torch", "swift_forked", "torch_fork"),
        ),
    )


QUESTIONS = (
    question(images, "memory", "uint8 3x224x224, batch 256 (38.5 MB)", at_most=1.3),
    question(floats, "memory_floats", "128 floats and a label, batch 32", at_most=1.0),
    question(jpeg, "memory_jpeg", "JPEG to float32 224, batch 64 (38.5 MB)", at_most=1.0),
)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS, option="--load"))
