"""Rotation pays: how soon a network has learned from a slow dataset, if each sample is used once, or several times.

Measures: the demo's network and its 1,437 digits, on the CPU with one thread; each sample takes 3 ms that cost no CPU,
as from a far store; 2 workers, batches of 32, so that a batch takes 48 ms to make and about a tenth of that to train
on. The clock runs from the first batch that is asked for until the mean loss on the held-out digits, looked at every
12 steps, is at most 0.1. Digits are shifted at random: either afresh at each use (`Cached(dataset, then=shift)`), or
once when the sample is made, so that its uses are the same. With rotation, 600 samples are kept in memory. The middle
of several seeds is taken.

Leaves out: what a longer training comes to. With as many steps, fresh samples are as good or better; rotation is for
when samples are what is waited for.

Command: `python -m benchmarks.rotation_pays` (two minutes; `--seeds 1` for a look). The last table is
`results/rotation_pays.txt`, the picture `results/rotation_pays.png`; three seeds or more are told in the guide,
`swift_loader/docs/reuse.md`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks import machine
from swift_loader import Cached, SwiftLoader
from swift_loader.cli import demo, digits

SAMPLE_S = 0.003
BATCH_SIZE = 32
WORKERS = 2
SIZE = 600
LOOK_STEPS = 12
TARGET = 0.1
MOST_S = 25.0
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "swift_loader" / "docs" / "reuse.md"
BEGIN, END = "<!-- rotation_pays -->\n", "<!-- end of rotation_pays -->"
#: With fewer, the page stays as it is.
PAGE_SEEDS = 3


class Case(NamedTuple):
    """One way to use the samples."""

    rotation: int
    fresh: bool

    @property
    def label(self) -> str:
        """As the table says it."""
        if self.rotation == 1:
            return "each sample once"
        return f"rotation {self.rotation}, {'shifted afresh' if self.fresh else 'the same each time'}"


CASES = (Case(1, fresh=True), *(Case(uses, fresh) for fresh in (True, False) for uses in (2, 3, 5)))


class Run(NamedTuple):
    """What came of one."""

    seconds: list[float]
    losses: list[float]
    steps: list[int]

    @property
    def took_s(self) -> float | None:
        """When the loss was reached."""
        return self.seconds[-1] if self.losses[-1] <= TARGET else None


class Slow:
    """Digits that take their time."""

    def __init__(self, table: digits.Table, *, augment: bool) -> None:
        self._digits = digits.Digits(*table, augment=augment)

    def __len__(self) -> int:
        return len(self._digits)

    def __getitem__(self, index: int) -> Any:
        time.sleep(SAMPLE_S)
        return self._digits[index]


def shifted(sample: tuple[np.ndarray, np.int64]) -> tuple[np.ndarray, np.int64]:
    """By up to a pixel, as the demo does."""
    image, label = sample
    padded = np.pad(image[0], 1)
    top, left = np.random.randint(3, size=2)  # noqa: NPY002 - the generator that the loader seeds
    return padded[np.newaxis, top : top + 8, left : left + 8], label


def run(case: Case, seed: int, training: digits.Table, held_out: tuple[torch.Tensor, torch.Tensor]) -> Run:
    """Train until the loss is reached."""
    slow = Slow(training, augment=not case.fresh)
    setting = None if case.rotation == 1 else {"medium": "memory", "rotation": case.rotation, "size": SIZE}
    torch.manual_seed(seed)
    network = demo._network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    found = Run([], [], [])
    loader = SwiftLoader.from_dataset(
        Cached(slow, then=shifted) if case.fresh else slow, BATCH_SIZE, 1, WORKERS, seed=seed, rotation_setting=setting
    )
    with loader:
        loader.start(0)
        begun = time.perf_counter()
        for step, (images, labels) in enumerate(chain.from_iterable(repeat(loader)), 1):
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % LOOK_STEPS:
                continue
            found.losses.append(loss_on(network, *held_out))
            found.seconds.append(time.perf_counter() - begun)
            found.steps.append(step)
            if found.took_s is not None or found.seconds[-1] > MOST_S:
                break
    return found


@torch.no_grad()
def loss_on(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The mean loss on the held-out digits."""
    network.eval()
    loss = nn.functional.cross_entropy(network(images), labels)
    network.train()
    return float(loss)


def table(runs: dict[Case, list[Run]], facts: str) -> str:
    """The result as text."""
    lines = [
        f"Time until a network has learned from a slow dataset (held-out loss {TARGET})",
        "",
        f"{'':34}{'seconds':>9}{'lowest':>9}{'highest':>9}{'steps':>7}{'faster':>9}",
        "-" * 80,
    ]
    base = middle(runs[CASES[0]])
    for case, found in runs.items():
        times = [one.took_s for one in found if one.took_s is not None]
        if len(times) < len(found):
            lines.append(f"{case.label:34} not within {MOST_S:g} s in {len(found) - len(times)} of {len(found)} runs")
            continue
        steps = statistics.median(one.steps[-1] for one in found)
        lines.append(
            f"{case.label:34}{middle(found):>9.2f}{min(times):>9.2f}{max(times):>9.2f}{steps:>7.0f}"
            f"{base / middle(found):>8.2f}x"
        )
    return "\n".join([*lines, "", facts]) + "\n"


def tell_page(runs: dict[Case, list[Run]]) -> None:
    """Put the figures into the guide."""
    rows = ["| | seconds | steps | faster |", "|---|---|---|---|"]
    base = middle(runs[CASES[0]])
    for case, found in runs.items():
        steps = statistics.median(one.steps[-1] for one in found)
        took = middle(found)
        rows.append(f"| {case.label} | {took:.1f} | {steps:.0f} | {base / took:.2f} x |")
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest[rest.index(END) :]
    PAGE.write_text(before + BEGIN + "\n".join(rows) + "\n" + after, encoding="utf-8")


def middle(found: list[Run]) -> float:
    """The time that the middle run took."""
    return statistics.median(one.seconds[-1] for one in found)


def draw(runs: dict[Case, list[Run]], facts: str, path: Path) -> None:
    """Losses over time, and how long it took."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    colours = {1: "#7b838c", 2: "#e0a83f", 3: "#0b7a75", 5: "#7a3b9c"}
    figure = Figure(figsize=(11, 4.6), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    curves, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    for case, found in runs.items():
        shown = sorted(found, key=lambda one: one.seconds[-1])[len(found) // 2]
        style = "-" if case.fresh else ":"
        curves.plot(shown.seconds, shown.losses, style, color=colours[case.rotation], label=case.label)
    curves.axhline(TARGET, color="#c9ced6", linewidth=0.8)
    curves.set(yscale="log", xlabel="seconds", ylabel="loss on held-out digits")
    curves.legend(frameon=False, fontsize=8)
    cases = list(runs)
    bars.barh(
        [-place for place in range(len(cases))],
        [middle(runs[case]) for case in cases],
        color=[colours[case.rotation] for case in cases],
        alpha=0.9,
    )
    for place, case in enumerate(cases):
        bars.text(middle(runs[case]), -place, f" {middle(runs[case]):.1f} s", va="center", fontsize=9)
    bars.set_yticks([-place for place in range(len(cases))], [case.label for case in cases], fontsize=8)
    bars.set_xlim(0, 1.2 * max(middle(found) for found in runs.values()))
    bars.set_xlabel(f"seconds until a loss of {TARGET}")
    for axes in (curves, bars):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Samples that take 3 ms each to make: rotation and the time to learn from them", fontsize=12)
    figure.text(0.01, 0.01, facts, fontsize=6, color="#7b838c")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(path)


def main() -> None:
    """Run all cases, one after the other, seed by seed."""
    parser = argparse.ArgumentParser(description="When rotation pays.")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    training, test = digits.load()
    held_out = torch.from_numpy(test.images[:, np.newaxis]), torch.from_numpy(test.labels)
    runs: dict[Case, list[Run]] = {case: [] for case in CASES}
    for seed in range(given.seeds):
        for case in CASES:
            runs[case].append(run(case, seed, training, held_out))
            print(f"{case.label}: {runs[case][-1].seconds[-1]:.2f} s", flush=True)
    known = machine.facts()
    facts = f"{known['cpu']}, {known['cores']} cores, torch {known['torch']}, commit {machine.commit()}"
    said = table(runs, facts)
    print(f"\n{said}")
    (RESULTS / "rotation_pays.txt").write_text(said, encoding="utf-8")
    record = {"machine": known, "runs": {case.label: [one._asdict() for one in found] for case, found in runs.items()}}
    (RESULTS / "rotation_pays.json").write_text(json.dumps(record) + "\n", encoding="utf-8")
    draw(runs, facts, RESULTS / "rotation_pays.png")
    if given.seeds >= PAGE_SEEDS:
        tell_page(runs)


if __name__ == "__main__":
    main()
