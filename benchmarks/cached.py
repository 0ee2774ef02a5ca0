"""A cache over epochs: decoding once, and reading back what was decoded.

Measures: 400x400 JPEG files in memory (smooth textures, about 30 kB), decoded by Pillow, cropped, resized to 224,
flipped, float32; shuffled, batches of 64 (38.5 MB), 2 workers, 4,096 samples in an epoch, 5 epochs. Ours keeps them on
disk, from an empty cache on; torch's DataLoader has none. An epoch is timed from the last batch of the one before to
its own last batch, the first from the construction of the dataset and the loader on. The picture
`results/cached_epochs.png` shows each epoch by itself. The second one still makes slots, since workers are ahead of the
consumer for the first time, and maps what was written.

Leaves out: a disk slower than the page cache, which would decide instead; augmentation that is done afresh (`Cached`).

Command: `python -m benchmarks.cached`. The last table is `results/cached.txt`.

Caveat: a cached sample here is 602 kB of float32, twenty times its JPEG file: the cache trades disk for CPU time.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import duel
from benchmarks.decoding import BATCH_SIZE, weigh
from benchmarks.decoding import work as decoding_work
from benchmarks.laps import Laps, run_epochs
from benchmarks.picture import COLOURS, FAINT, INK
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.transport import case_ceiling

EPOCHS = 5
EPOCH_BATCHES = 64
LATER = slice(1, None)


def rates(laps: Laps) -> list[float]:
    """Samples per second of each epoch."""
    ends = [laps.started_at, *(lap.last_at for lap in laps.laps)]
    return [lap.samples / (lap.last_at - begun) for lap, begun in zip(laps.laps, ends, strict=False)]


def result(laps: Laps, epochs: slice) -> Result:
    """The figures of a run: the middle of some of its epochs."""
    found = rates(laps)
    return {**laps.result(), "samples_per_s": median(found[epochs]), "epoch_rates": found}


def work(settings: Settings) -> Work:
    """The decoding workload, with epochs that take seconds."""
    given = decoding_work(settings)
    return replace(given, dataset_kwargs={**given.dataset_kwargs, "count": settings.size(EPOCH_BATCHES) * BATCH_SIZE})


def settled(settings: Settings) -> Settings:
    """As many epochs as are shown, and no more."""
    return Settings(0.0, settings.seed, EPOCHS, settings.shrink)


def case_swift(settings: Settings, epochs: slice) -> Result:
    """Ours, from an empty cache on."""
    with tempfile.TemporaryDirectory() as folder:
        given = work(settings)
        given.ours["cache_setting"] = {"prefix": f"{folder}/kept"}
        return result(run_epochs(build_swift(given), weigh, settled(settings)), epochs)


def case_torch(settings: Settings, *, persistent: bool) -> Result:
    """Torch's, which decodes in each epoch."""
    return result(run_epochs(build_torch(work(settings), persistent=persistent), weigh, settled(settings)), LATER)


def draw_epochs(record: dict[str, Any], stem: Path) -> None:
    """Each epoch by itself, the median of the rounds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.09, 0.14, 0.87, 0.70))
    for name, label in (("swift_later", "swift_loader, cache"), ("torch_persistent", "torch, persistent, no cache")):
        case = record["cases"][name]
        rounds = [each["epoch_rates"] for each in case["rounds"] if each is not None]
        if not rounds:
            continue
        line = [median(column) for column in zip(*rounds, strict=False)]
        numbers = range(1, len(line) + 1)
        axes.plot(numbers, line, marker="o", color=COLOURS[Side(case["side"])], label=label)
        for number, rate in zip(numbers, line, strict=True):
            axes.annotate(f"{rate:,.0f}", (number, rate), (0, 7), textcoords="offset points", ha="center", fontsize=8)
    axes.set_yscale("log")
    axes.margins(y=0.2)
    axes.set_xticks(range(1, EPOCHS + 1))
    axes.set_xlabel("epoch", fontsize=9, color=FAINT)
    axes.set_ylabel("samples/s", fontsize=9, color=FAINT)
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    figure.text(0.02, 0.93, record["title"], fontsize=12, fontweight="bold", color=INK)
    figure.savefig(stem.with_name(f"{stem.name}_epochs.png"))


QUESTION = Question(
    name="cached",
    title=f"A cache over epochs: JPEG, Pillow, 224, float32, batch {BATCH_SIZE}, 2 workers",
    metric="samples_per_s",
    unit="samples/s",
    cases=(
        Case("swift_first", "ours, first epoch", Side.OURS, partial(case_swift, epochs=slice(0, 1))),
        Case("swift_second", "ours, second epoch", Side.OURS, partial(case_swift, epochs=slice(1, 2))),
        Case("swift_later", "ours, later epochs", Side.OURS, partial(case_swift, epochs=LATER)),
        Case("torch_fork", "torch, fork, no cache", Side.TORCH, partial(case_torch, persistent=False)),
        Case("torch_persistent", "torch, persistent, no cache", Side.TORCH, partial(case_torch, persistent=True)),
        Case("ceiling", "two cores stacking, warm", Side.CEILING, partial(case_ceiling, dtype="float32")),
    ),
    columns=(Column("first_batch_s", "first s"), Column("seconds", "seconds")),
    goals=(
        Goal("ours, second / first epoch", "swift_second", "swift_first", at_least=10),
        Goal("ours, later / first epoch", "swift_later", "swift_first", at_least=10),
        Goal("ours, later / torch fork", "swift_later", "torch_fork", at_least=10),
        Goal("ours, later / torch persistent", "swift_later", "torch_persistent", at_least=10),
        Goal("ours, first / torch persistent", "swift_first", "torch_persistent"),
    ),
    chart=draw_epochs,
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
