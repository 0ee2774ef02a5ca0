"""Figures of the faults: what was measured many times, held against what was to be reached; as text, JSON, a picture.

Pure but for the files at the end. Does not know what is measured, nor how.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.picture import COLOURS, FAINT, INK
from benchmarks.question import Side
from benchmarks.table import WIDTH, short, wrapped

LABEL_WIDTH = 25
STATISTICS = ("median", "p95", "p99", "max")


@dataclass(frozen=True)
class Limit:
    """What a statistic of a figure should come to."""

    statistic: str
    at_most: float | None = None
    at_least: float | None = None

    def __str__(self) -> str:
        if self.statistic == "all":
            return "all"
        return f"{self.statistic} {'<=' if self.at_least is None else '>='} {self.at_most or self.at_least or 0:g}"


@dataclass(frozen=True)
class Figure:
    """Something measured ``len(values)`` times. Without a unit, each value is 1 where all was well and 0 where not."""

    name: str
    label: str
    unit: str
    values: list[float]
    limits: tuple[Limit, ...] = ()

    @property
    def is_count(self) -> bool:
        return not self.unit

    def statistic(self, name: str) -> float | None:
        """One of `STATISTICS`, or None if nothing was measured."""
        values = sorted(self.values)
        if not values:
            return None
        if name == "median":
            return median(values)
        share = {"p95": 0.95, "p99": 0.99, "max": 1.0}[name]
        return values[min(len(values) - 1, int(share * len(values)))]

    def reached(self, limit: Limit) -> bool:
        """Whether it is what it should be; a figure that is missing is not."""
        if limit.statistic == "all":
            return bool(self.values) and all(self.values)
        value = self.statistic(limit.statistic)
        if value is None:
            return False
        above = limit.at_most is None or value <= limit.at_most
        return above and (limit.at_least is None or value >= limit.at_least)


def whole(name: str, label: str, values: Sequence[bool]) -> Figure:
    """A figure that should be true each time."""
    return Figure(name, label, "", [float(value) for value in values], (Limit("all"),))


def as_record(figure: Figure) -> dict[str, Any]:
    """A figure as it is kept."""
    return {
        "name": figure.name,
        "label": figure.label,
        "unit": figure.unit,
        "n": len(figure.values),
        **({"well": int(sum(figure.values))} if figure.is_count else {s: figure.statistic(s) for s in STATISTICS}),
        "to_reach": [{"limit": str(limit), "reached": figure.reached(limit)} for limit in figure.limits],
        "values": [round(value, 4) for value in figure.values],
    }


def table(title: str, figures: Sequence[Figure], notes: Sequence[str]) -> str:
    """All figures, at most 80 columns wide."""
    heads = "".join(f"{head:>8}" for head in STATISTICS)
    lines = [title, "", f"{'figure':<{LABEL_WIDTH}}{'n':>5}{heads}  to reach", "-" * WIDTH]
    for figure in figures:
        label = f"{figure.label}{', ' if figure.unit else ''}{figure.unit}"
        lines.append(f"{label[:LABEL_WIDTH]:<{LABEL_WIDTH}}{len(figure.values):>5}{_cells(figure)}")
        for number, limit in enumerate(figure.limits):
            judged = f" {limit!s:<14}{'yes' if figure.reached(limit) else 'NO'}"
            if number == 0:
                lines[-1] += judged
            else:
                lines.append(" " * (LABEL_WIDTH + 5 + 8 * len(STATISTICS)) + judged)
    said = [line for note in notes for line in wrapped(note)]
    return "\n".join([*(line.rstrip() for line in lines), "", *said]) + "\n"


def _cells(figure: Figure) -> str:
    if figure.is_count:
        words = f"{int(sum(figure.values))} of {len(figure.values)}"
        return f"{words:>{8 * len(STATISTICS)}}"
    return "".join(f"{short(figure.statistic(name)):>8}" for name in STATISTICS)


def as_markdown(figures: Sequence[Figure]) -> str:
    """The same for a page of the documents."""
    lines = ["| figure | n | median | p99 | max | to reach |", "|---|---|---|---|---|---|"]
    for figure in figures:
        goal = "; ".join(f"{limit}{'' if figure.reached(limit) else ' (**missed**)'}" for limit in figure.limits)
        label = f"{figure.label}{', ' if figure.unit else ''}{figure.unit}"
        if figure.is_count:
            cells = [f"{int(sum(figure.values))} of {len(figure.values)}", "", ""]
        else:
            cells = [short(figure.statistic(name)) for name in ("median", "p99", "max")]
        lines.append(f"| {label} | {len(figure.values)} | {' | '.join(cells)} | {goal} |")
    return "\n".join(lines) + "\n"


def put_between(page: Path, mark: str, text: str) -> None:
    """Replaces what stands between the two marks of that name in a page.

    Raises:
        SystemExit: if the page does not have them.
    """
    begin, end = f"<!-- {mark}: written by the benchmark, not by hand -->", f"<!-- end of {mark} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    before = page.read_text(encoding="utf-8")
    if len(pattern.findall(before)) != 1:
        raise SystemExit(f"{page.name} needs one line {begin!r} and one {end!r} below it")
    page.write_text(pattern.sub(lambda _: f"{begin}\n\n{text}\n{end}", before), encoding="utf-8")


def draw(title: str, figures: Sequence[Figure], footer: str, path: Path) -> None:
    """Times as bars on a scale of powers of ten: median, a whisker to the longest, a tick at what is to be reached."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    timed = [figure for figure in figures if figure.unit == "ms" and figure.values]
    counted = [figure for figure in figures if figure.is_count]
    bars, text = 0.34 * len(timed) + 0.5, 0.21 * (len(counted) + 1) + 0.2
    height = 0.7 + bars + text
    picture = Picture(figsize=(9, height), dpi=160, facecolor="white")
    FigureCanvasAgg(picture)
    axes = picture.add_axes((0.27, (text + 0.45) / height, 0.66, (bars - 0.45) / height))
    for place, figure in enumerate(reversed(timed)):
        middle, longest = figure.statistic("median") or 0.0, max(figure.values)
        axes.barh(place, middle, height=0.62, color=COLOURS[Side.OURS])
        axes.hlines(place, middle, longest, color=INK, linewidth=1.0)
        axes.vlines(longest, place - 0.14, place + 0.14, color=INK, linewidth=1.0)
        axes.text(longest * 1.12, place, short(middle), va="center", fontsize=9, color=INK)
        for limit in figure.limits:
            axes.vlines(limit.at_most or 0, place - 0.42, place + 0.42, color=COLOURS[Side.TORCH], linewidth=1.8)
    axes.set_xscale("log")
    axes.set_xlim(left=0.5)
    axes.minorticks_off()
    axes.set_yticks(range(len(timed)), [figure.label for figure in reversed(timed)], fontsize=9, color=INK)
    axes.set_ylim(-0.6, len(timed) - 0.4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="x", labelsize=8, colors=FAINT, length=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    picture.text(0.02, 1 - 0.30 / height, title, fontsize=12, fontweight="bold", color=INK)
    legend = "ms, less is better; bar: median, whisker: longest, orange: to reach (median, p95, p99 or longest)"
    picture.text(0.02, 1 - 0.52 / height, legend, fontsize=9, color=FAINT)
    for place, figure in enumerate(counted):
        below = (text - 0.16 - 0.21 * place) / height
        picture.text(0.02, below, f"{figure.label}: {int(sum(figure.values))} of {len(figure.values)}", fontsize=9)
    picture.text(0.02, 0.12 / height, footer, fontsize=7, color=FAINT)
    picture.savefig(path)
