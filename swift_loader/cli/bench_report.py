"""What `swift-loader bench` measured, as text, bars and a page. Pure: figures in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.cli.bench_side import EPOCHS, Measured, Spec
from swift_loader.cli.page import Page, Table
from swift_loader.telemetry.words import number

if TYPE_CHECKING:
    from swift_loader.cli.chart import Panel

_WIDTH = 80
#: Below this difference two sides are alike.
_ALIKE = 1.05
OURS = "swift"
LABELS = {"swift": "swift_loader", "torch": "torch DataLoader", "torch_persistent": "torch, persistent"}


class Metric(NamedTuple):
    """One thing that is measured."""

    key: str
    header: str
    title: str
    unit: str
    higher_is_better: bool = False


METRICS = (
    Metric("samples_per_s", "samples/s", "throughput", "samples/s", higher_is_better=True),
    Metric("first_batch_s", "first s", "first batch", "s"),
    Metric("gap_ms", "gap ms", "gap between epochs", "ms"),
    Metric("cpu_ms", "CPU ms", "CPU time per batch", "ms"),
    Metric("pss_mb", "PSS MB", "memory of all processes", "MB"),
)
HEADERS = (METRICS[0].header, "low - high", *(metric.header for metric in METRICS[1:]))


@dataclass(frozen=True)
class Report:
    """All rounds of all sides."""

    spec: Spec
    length: int
    cores: float
    rounds: Mapping[str, Sequence[Measured]]
    """By side; a round that failed is not there."""
    failures: Mapping[str, str]
    """Why a side failed, by side."""

    def middle(self, side: str, metric: Metric) -> float | None:
        """Of all rounds."""
        values = self.values(side, metric)
        return median(values) if values else None

    def values(self, side: str, metric: Metric) -> list[float]:
        """Of each round in which it was measured."""
        found = [getattr(one, metric.key) for one in self.rounds.get(side, ())]
        return [value for value in found if value is not None]

    @property
    def sides(self) -> list[str]:
        """Those that were run, ours first."""
        return [side for side in LABELS if side in self.rounds or side in self.failures]

    def table(self) -> str:
        """A line for each side, at most 80 columns wide."""
        rate, spread, *others = HEADERS
        lines = [f"{'':<18}{rate:>10}{spread:>17}" + "".join(f"{header:>8}" for header in others)]
        lines.append("-" * len(lines[0]))
        for side in self.sides:
            if not self.rounds.get(side):
                lines.append(f"{LABELS[side]:<18}  failed")
                continue
            rate, spread, *others = self.cells(side)
            lines.append(f"{LABELS[side]:<18}{rate:>10}{spread:>17}" + "".join(f"{cell:>8}" for cell in others))
        return "\n".join(lines)

    def cells(self, side: str) -> list[str]:
        """What a table says of a side, by `HEADERS`."""
        rates = self.values(side, METRICS[0])
        spread = f"{short(min(rates))} - {short(max(rates))}" if rates else "-"
        rate, *others = [short(self.middle(side, metric)) for metric in METRICS]
        return [rate, spread, *others]

    @property
    def verdict(self) -> str:
        """Who is better at what: torch by the better of its two ways."""
        ours: list[str] = []
        theirs: list[str] = []
        alike: list[str] = []
        for metric in METRICS:
            best = self._best_of_torch(metric)
            mine = self.middle(OURS, metric)
            if mine is None or best is None:
                continue
            its = self.middle(best, metric) or 0.0
            ratio = _ratio(mine, its, metric)
            if 1 / _ALIKE < ratio < _ALIKE or self._overlap(best, metric):
                alike.append(_compared(metric, mine, its))
            elif ratio > 1:
                ours.append(_compared(metric, mine, its))
            else:
                theirs.append(_compared(metric, its, mine))
        parts = [("swift_loader is better at", ours), ("torch is better at", theirs), ("Alike:", alike)]
        text = ". ".join(f"{head} {', '.join(said)}" for head, said in parts if said)
        return f"{text}." if text else "There is nothing to compare."

    @property
    def notes(self) -> list[str]:
        """What was done, and what could not be."""
        spec = self.spec
        epoch = "whole epochs" if spec.steps is None else f"epochs of {spec.steps} batches, drawn at random"
        threads = f", {spec.start_method}" if spec.start_method else ", each with its own default start method"
        done = (
            f"Batches of {spec.batch_size} of {self.length:,} samples, {spec.workers} workers on {self.cores:g} cores"
            f"{threads}; {EPOCHS} {epoch}, rounds in turns, the middle of each. "
            "Each side prefetches as it does by default."
        )
        notes = [done]
        for side in self.sides:
            missing = [metric.title for metric in METRICS if self.rounds.get(side) and not self.values(side, metric)]
            if missing:
                notes.append(f"{LABELS[side]}: could not be measured: {', '.join(missing)}.")
        notes += [f"{LABELS[side]} failed: {reason}" for side, reason in self.failures.items()]
        return notes

    def _best_of_torch(self, metric: Metric) -> str | None:
        found = {side: self.middle(side, metric) for side in self.sides if side != OURS}
        measured = {side: value for side, value in found.items() if value is not None}
        if not measured:
            return None
        return (max if metric.higher_is_better else min)(measured, key=lambda side: measured[side])

    def _overlap(self, other: str, metric: Metric) -> bool:
        """Whether some round of one side is between those of the other: then they cannot be told apart."""
        mine, theirs = self.values(OURS, metric), self.values(other, metric)
        return min(mine) <= max(theirs) and min(theirs) <= max(mine)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "spec": asdict(self.spec),
            "length": self.length,
            "cores": self.cores,
            "verdict": self.verdict,
            "notes": self.notes,
            "sides": {side: [asdict(one) for one in rounds] for side, rounds in self.rounds.items()},
            "failures": dict(self.failures),
        }

    def __str__(self) -> str:
        notes = [_folded(note) for note in self.notes]
        return "\n\n".join([self.table(), textwrap.fill(self.verdict, _WIDTH), *notes])


def panels(report: Report) -> list[Panel]:
    """The chart: a panel for each thing that was measured."""
    from swift_loader.cli.chart import Bar, Panel

    drawn = []
    for metric in METRICS:
        bars = []
        for side in report.sides:
            values, middle = report.values(side, metric), report.middle(side, metric)
            text = "not measured" if middle is None else f"{short(middle)} {metric.unit}"
            low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
            bars.append(Bar(LABELS[side], middle, text, low, high, side == OURS))
        better = "more is better" if metric.higher_is_better else "less is better"
        drawn.append(Panel(f"{metric.title}, {metric.unit} ({better})", bars))
    return drawn


def page(report: Report) -> Page:
    """The page; its chart is still to be drawn."""
    head = ("", *HEADERS)
    cells = [(LABELS[side], *report.cells(side)) for side in report.sides]
    name = report.spec.dataset.rpartition(":")[2]
    title = f"{name}: swift_loader beside torch's DataLoader"
    return Page(title, report.verdict, "", Table(head, cells), "", report.notes)


def short(value: float | None) -> str:
    return "-" if value is None else number(value)


def _compared(metric: Metric, one: float, other: float) -> str:
    return f"{metric.title} ({short(one)} against {short(other)} {metric.unit})"


def _ratio(mine: float, best: float, metric: Metric) -> float:
    if min(mine, best) <= 0:
        return 1.0
    return mine / best if metric.higher_is_better else best / mine


def _folded(note: str) -> str:
    """A note's own lines, such as those of a traceback, stay."""
    first, *rest = note.splitlines() or [""]
    return "\n".join([textwrap.fill(first, _WIDTH), *rest])
