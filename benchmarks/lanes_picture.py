"""A picture of the order over runs: which of them are open over the steps of an epoch, and how mixed batches are.

Computes: a set like ImageNet's (1,281,167 samples of 110 kB, 1,000 classes) in the worst case, sorted by class, in
shards of 1,000 samples. Classes in a batch of 256, bytes that are held at a time, and how uneven the demand for bytes
is: what is needed for the first time while 512 MiB of samples are used, at most and on average, after the first such
stretch. Orders:

- this project's, over runs of 8 MiB of which 64 or 256 are mixed, and by nearby_shuffle with its default;
- whole shards, 16 at a time shuffled together: all 16 are needed before the first sample is taken;
- webdataset's `shuffle(n)`, simulated: shards in random order, one after the other, through a buffer of n samples;
- a shuffle of everything.

Leaves out: time. Nothing is read; orders are looked at.

Command: `python -m benchmarks.lanes_picture` (seconds). The table is `results/lanes.txt`, the picture
`results/lanes.png`; the guide, `swift_loader/docs/plan.md`, shows both, and the command writes the figures into it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from swift_loader.plan.epoch_lanes import Need
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.runs import Runs, extents

SAMPLES, CLASSES, NBYTES = 1_281_167, 1_000, 110_000
BATCH_SIZE = 256
SHARD = 1_000
TOGETHER = 16
#: The demand is looked at over stretches of so many samples: 512 MiB.
STRETCH = (512 << 20) // NBYTES
#: Batches of webdataset's stream that are looked at: a buffer must have been gone through a few times.
STREAM_BATCHES = 2_000
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "swift_loader" / "docs" / "plan.md"
BEGIN, END = "<!-- lanes -->\n", "<!-- end of lanes -->"
OURS, OTHERS = "#0b7a75", "#e07a3f"


class Row(NamedTuple):
    """What is told of one order."""

    name: str
    classes: float
    held: str
    busiest: str
    colour: str = OTHERS


def shards() -> np.ndarray:
    """Lengths of the set's shards."""
    return np.diff(np.append(np.arange(0, SAMPLES, SHARD), SAMPLES))


def over_runs(mix: int) -> Row:
    """This project's order, over parts of shards."""
    runs = Runs(extents(shards(), shards() * NBYTES))
    plan = EpochPlan(sample_count=SAMPLES, batch_size=BATCH_SIZE, mix=mix, runs=runs)
    need = plan.need(0, 0)
    demand = np.bincount(need.first_step * BATCH_SIZE // STRETCH, weights=need.size)
    return Row(f"{mix} runs of 8 MiB", mixed(plan), held(need), times(demand), OURS)


def rows() -> Iterator[Row]:
    """Look at all orders."""
    yield over_runs(64)
    yield over_runs(256)
    nearby = EpochPlan(sample_count=SAMPLES, batch_size=BATCH_SIZE, window=5 * BATCH_SIZE)
    yield Row("nearby_shuffle by default", mixed(nearby), "-", "-", OURS)
    together = EpochPlan(sample_count=SAMPLES, batch_size=BATCH_SIZE, window=SHARD, mix=TOGETHER)
    demand = np.zeros(SAMPLES // STRETCH + 1)
    np.add.at(demand, np.arange(0, SAMPLES, TOGETHER * SHARD) // STRETCH, TOGETHER * SHARD)
    size = f"{TOGETHER * SHARD * NBYTES / 1e9:.1f} GB"
    yield Row(f"{TOGETHER} whole shards", mixed(together), size, times(demand))
    for buffer in (1_000, 20_000):
        held_there = f"{buffer * NBYTES / 1e9:.1f} GB a worker"
        yield Row(f"webdataset shuffle({buffer:,})", streamed(buffer), held_there, "1.0 x")
    everything = EpochPlan(sample_count=SAMPLES, batch_size=BATCH_SIZE)
    yield Row("everything shuffled", mixed(everything), "-", "-")


def mixed(plan: EpochPlan) -> float:
    """Classes in a batch, on average over an epoch."""
    found = [classes(batch) for first in range(0, 5_000, 100) for batch in plan.indices(0, 0, first, 4)]
    return float(np.mean(found))


def classes(batch: list[int]) -> int:
    """How many there are of the set that is sorted by them."""
    return len({index * CLASSES // SAMPLES for index in batch})


def streamed(buffer: int) -> float:
    """Classes in a batch of webdataset's stream, once its buffer is full."""
    stream = buffered(samples_of_shards(random.Random(0)), buffer, random.Random(1))
    full = buffer // BATCH_SIZE + 1
    found = [classes(list(islice(stream, BATCH_SIZE))) for _ in range(full + STREAM_BATCHES)]
    return float(np.mean(found[full:]))


def samples_of_shards(chance: random.Random) -> Iterator[int]:
    """Shards in random order, each from its beginning to its end."""
    order = list(range(-(-SAMPLES // SHARD)))
    chance.shuffle(order)
    for shard in order:
        yield from range(shard * SHARD, min(SAMPLES, (shard + 1) * SHARD))


def buffered(samples: Iterator[int], size: int, chance: random.Random, initial: int = 100) -> Iterator[int]:
    """As webdataset's `shuffle` does it: two come in while it fills, then one comes in for each that goes."""
    held: list[int] = []
    for sample in samples:
        held.append(sample)
        if len(held) < size:
            held.extend(islice(samples, 1))
        if len(held) >= initial:
            place = chance.randrange(len(held))
            held[place], held[-1] = held[-1], held[place]
            yield held.pop()


def held(need: Need) -> str:
    """What is held at a time, at most, of parts that come as wholes and go after their last step."""
    steps = int(need.last_step.max()) + 2
    comes = np.bincount(need.first_step, weights=need.size, minlength=steps)
    goes = np.bincount(need.last_step + 1, weights=need.size, minlength=steps)
    return f"{np.cumsum(comes - goes).max() * NBYTES / 1e9:.1f} GB"


def times(demand: np.ndarray) -> str:
    """The busiest stretch, as a multiple of the mean."""
    whole = demand[1:-1]
    return f"{whole.max() / whole.mean():.1f} x"


def draw(found: list[Row], path: Path) -> None:
    """Runs over the steps, and classes in a batch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    wall, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    draw_wall(wall)
    places = [-place for place in range(len(found))]
    bars.barh(places, [row.classes for row in found], color=[row.colour for row in found])
    for place, row in zip(places, found, strict=True):
        bars.text(row.classes, place, f" {row.classes:.0f}", va="center", fontsize=9)
    bars.set_yticks(places, [row.name for row in found], fontsize=8)
    bars.set_title(f"classes in a batch of {BATCH_SIZE}, of a set sorted by class", fontsize=9)
    for axes in (wall, bars):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def draw_wall(axes) -> None:
    """A small set's epoch: each run is a bar from the step at which it is first needed to its last one."""
    plan = EpochPlan(sample_count=600 * 76, batch_size=BATCH_SIZE, mix=64, runs=Runs([76] * 600))
    need = plan.need(0, 0)
    free: list[int] = []  # for each place in memory, the step at which it is free again
    for first, size, begin, end in zip(*(column.tolist() for column in need), strict=True):
        place = next((place for place, step in enumerate(free) if step <= begin), len(free))
        free[place : place + 1] = [end + 1]
        axes.barh(place, end + 1 - begin, left=begin, height=0.9, color=colour_of(first // 76 / 600), alpha=size / 76)
    axes.set(xlabel="step of the epoch", ylabel="runs that are open")
    axes.set_title("600 runs, 64 mixed: a bar is a run, its colour where in the dataset it lies", fontsize=9)


def colour_of(part: float) -> tuple[float, float, float, float]:
    """A place in the dataset as a colour."""
    from matplotlib import colormaps

    return colormaps["viridis"](part)


def main() -> None:
    """Look, tell, draw."""
    found = list(rows())
    head = f"{'':28}{'classes in a batch':>20}{'held at a time':>18}{'busiest / mean':>16}"
    lines = [f"{row.name:28}{row.classes:>20.1f}{row.held:>18}{row.busiest:>16}" for row in found]
    said = "\n".join([head, *lines]) + "\n"
    print(said)
    (RESULTS / "lanes.txt").write_text(said, encoding="utf-8")
    draw(found, RESULTS / "lanes.png")
    cells = [f"| {row.name} | {row.classes:.0f} | {row.held} | {row.busiest} |" for row in found]
    table = ["| | classes in a batch | held at a time | busiest 512 MiB / mean |", "|---|---|---|---|", *cells]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    if rest:
        PAGE.write_text(before + BEGIN + "\n".join(table) + "\n" + rest[rest.index(END) :], encoding="utf-8")


if __name__ == "__main__":
    main()
