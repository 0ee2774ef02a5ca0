"""Memory: what a training script and all the processes of its loader hold, at most and while it goes on evenly.

Measures: what the training process and all below it hold, each page once however many of them have it (memory of their
own and shared memory from the kernel's smaps_rollup, as proportional set size; pages of programs and libraries as many
as the one has that has most of them), looked at every 50 ms from the moment at which the loader is built. An epoch as
fast as it goes, then one with a step for each batch that leaves the workers time to fill all queues; "steady" is the
median of the second one. Default settings, 2 workers, one consumer that holds a batch until it has the next one. In a
plain script our workers are forked from a copy of it, beside a thread from a lean interpreter: both are rows. Three
loads: `--load images`: batches of 38.5 MB (uint8 3x224x224, 256 of them, of 8 arrays in memory); `--load floats`: 128
floats and a label, batches of 32; `--load jpeg`: 400x400 JPEG by Pillow, crop, 224, float32, batches of 64 (38.5 MB).

The ceiling is torch's DataLoader without workers: the script itself, and one batch.

Leaves out: a model, a GPU (page locks count as memory of the trainer), memory of the kernel (sockets, page tables).

Command: `python -m benchmarks.memory [--load floats]`. The last tables are `results/memory*.txt`.

Caveat: looked at by another process, which is not counted and sleeps in between: a peak of a few milliseconds may be
missed, and what comes or goes while it looks may count twice or not at all. Torch's processes are forked anew for the
second epoch, so its peak holds both, if they overlap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import duel
from benchmarks.jpeg_workload import JpegImages, jpeg_files
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.scales import Scales
from benchmarks.sides import Work, build_in_process, build_swift, build_torch
from benchmarks.workloads import Floats, MemoryImages

EPOCH_BATCHES = 64
DISTINCT = 8


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
    scales = Scales()
    loader = build()
    rows = _epoch(loader, 0.0)
    scales.mark()
    if _epoch(loader, step_s) != rows:
        raise RuntimeError("epochs did not hold as many samples")
    first, second = scales.end()
    if hasattr(loader, "close"):
        loader.close()
    return {**second, "peak_mb": max(first["peak_mb"], second["peak_mb"]), "samples_per_epoch": rows, "checksum": 0}


def _epoch(loader: Any, step_s: float) -> int:
    rows = 0
    for batch in loader:
        rows += len(batch[0] if isinstance(batch, list | tuple) else batch)
        time.sleep(step_s)
    return rows


def case_swift(settings: Settings, load: Callable[[Settings], Work]) -> Result:
    """Ours."""
    return weigh_all(build_swift(load(settings)), STEP_S[load])


def case_threaded(settings: Settings, load: Callable[[Settings], Work]) -> Result:
    """Ours, in a script that has a thread, as it has with a logger's service or an accelerator's library."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return case_swift(settings, load)


def case_torch(settings: Settings, load: Callable[[Settings], Work]) -> Result:
    """Torch's."""
    return weigh_all(build_torch(load(settings)), STEP_S[load])


def case_in_process(settings: Settings, load: Callable[[Settings], Work]) -> Result:
    """Torch's without workers: one process, one batch."""
    return weigh_all(build_in_process(load(settings)), STEP_S[load])


def question(load: Callable[[Settings], Work], name: str, title: str, at_most: float) -> Question:
    """The question for one load."""
    return Question(
        name=name,
        title=f"Memory of all processes: {title}, 2 workers",
        metric="peak_mb",
        unit="MB",
        higher_is_better=False,
        variant=load.__name__,
        cases=(
            Case("swift", "ours", Side.OURS, partial(case_swift, load=load)),
            Case("swift_threaded", "ours, in a script with a thread", Side.OURS, partial(case_threaded, load=load)),
            Case("torch_fork", "torch, fork", Side.TORCH, partial(case_torch, load=load)),
            Case("in_process", "torch, no workers", Side.CEILING, partial(case_in_process, load=load)),
        ),
        columns=(Column("steady_mb", "steady"), Column("trainer_mb", "trainer")),
        goals=(
            Goal("ours / torch", "swift", "torch_fork", at_most=at_most),
            Goal("ours, with a thread / torch", "swift_threaded", "torch_fork"),
        ),
    )


QUESTIONS = (
    question(images, "memory", "uint8 3x224x224, batch 256 (38.5 MB)", at_most=1.3),
    question(floats, "memory_floats", "128 floats and a label, batch 32", at_most=1.0),
    question(jpeg, "memory_jpeg", "JPEG to float32 224, batch 64 (38.5 MB)", at_most=1.0),
)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS, option="--load"))
