"""Results as a picture: one bar per case, whiskers from the lowest to the highest round.

The only file that imports matplotlib, and only when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.question import Question, Side
from benchmarks.score import Figures, Verdict, spread
from benchmarks.table import bound, numbers, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {Side.OURS: "#0b7a75", Side.TORCH: "#e07a3f", Side.CEILING: "#c9ced6"}
MEANING = {Side.OURS: "swift_loader", Side.TORCH: "torch DataLoader", Side.CEILING: "ceiling / no workers"}
INK = "#22262b"
FAINT = "#7b838c"
INCHES_PER_BAR = 0.36
INCHES_PER_LINE = 0.21
#: Between two groups of bars, in bars.
AIR = 0.6
#: Where the columns of the goals begin, of the picture's width.
COLUMNS = (0.02, 0.30, 0.38, 0.60, 0.76)


def draw(question: Question, figures: Figures, verdicts: Sequence[Verdict], footer: str, path: Path) -> None:
    """Draw a question's result into a PNG file.

    Args:
        question: what was asked.
        figures: each case's figure in each round.
        verdicts: the goals, judged; those with figures are printed below the bars.
        footer: the machine and versions, in one line.
        path: the file to write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    said = [cells(verdict) for verdict in verdicts if verdict.spread is not None]
    bars = INCHES_PER_BAR * (heights(question)[0] + 1) + 0.45
    text = INCHES_PER_LINE * (len(said) + 1) + 0.28
    head = 0.78
    height = head + bars + text
    figure = Figure(figsize=(9, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.27, (text + 0.40) / height, 0.63, (bars - 0.40) / height))
    draw_bars(axes, question, figures)
    figure.text(0.02, 1 - 0.30 / height, question.title, fontsize=12, fontweight="bold", color=INK)
    wish = "more is better" if question.higher_is_better else "less is better"
    figure.text(0.02, 1 - 0.52 / height, f"{question.unit}, {wish}", fontsize=9, color=FAINT)
    legend(figure, question, height)
    for place, words in enumerate(said):
        below = (text - 0.16 - INCHES_PER_LINE * place) / height
        for left, word in zip(COLUMNS, words, strict=True):
            figure.text(left, below, word, fontsize=9, color=FAINT if word.startswith("(") else INK)
    below = (text - 0.16 - INCHES_PER_LINE * len(said) - 0.06) / height
    figure.text(COLUMNS[0], below, footer, fontsize=7, color=FAINT)
    figure.savefig(path)


def draw_bars(axes: Axes, question: Question, figures: Figures) -> None:
    """The bars themselves, first case on top, each with its figure at its end."""
    places = heights(question)
    found = [spread(figures.get(case.name, ())) for case in question.cases]
    longest = max((each.highest for each in found if each is not None), default=0.0) or 1.0
    for place, case, each in zip(places, question.cases, found, strict=True):
        if each is None:
            axes.text(longest * 0.008, place, "failed", va="center", fontsize=9, color="#b3261e")
            continue
        axes.barh(place, each.median, height=0.66, color=COLOURS[case.side])
        if each.lowest < each.highest:
            axes.hlines(place, each.lowest, each.highest, color=INK, linewidth=1.0)
            axes.vlines([each.lowest, each.highest], place - 0.12, place + 0.12, color=INK, linewidth=1.0)
        weight = "bold" if case.side is Side.OURS else "normal"
        axes.text(
            each.highest + longest * 0.012,
            place,
            short(each.median),
            va="center",
            fontsize=9,
            fontweight=weight,
            color=INK,
        )
    axes.set_yticks(places, [case.label for case in question.cases], fontsize=9, color=INK)
    axes.set_xlim(0, longest * 1.10)
    axes.set_ylim(-0.6, max(places) + 0.6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < 10_000 else f"{value / 1000:g}k")
    axes.tick_params(axis="x", labelsize=8, colors=FAINT, length=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def heights(question: Question) -> list[float]:
    """Where each case's bar stands: the first on top, some air between groups, the last at 0."""
    depths, depth, before = [], 0.0, question.cases[0].group
    for case in question.cases:
        if case.group != before:
            depth += AIR
        depths.append(depth)
        depth, before = depth + 1, case.group
    return [depths[-1] - each for each in depths]


def legend(figure: Figure, question: Question, height: float) -> None:
    """Which colour is whose, at the top right."""
    from matplotlib.patches import Patch

    sides = [side for side in Side if any(case.side is side for case in question.cases)]
    figure.legend(
        handles=[Patch(color=COLOURS[side], label=MEANING[side]) for side in sides],
        loc="upper right",
        bbox_to_anchor=(0.985, 1 - 0.40 / height),
        ncols=len(sides),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        handlelength=1.0,
        handleheight=1.0,
        borderaxespad=0.0,
        borderpad=0.0,
    )


def cells(verdict: Verdict) -> tuple[str, ...]:
    """A goal in words: what it is, what it came to, lowest and highest, what was asked for, whether it was reached."""
    median, lowest, highest = numbers(verdict.spread)
    varied = "" if lowest == highest else f"({lowest} to {highest})"
    if verdict.reached is None:
        return (verdict.goal.text, median, varied, "", "")
    return (verdict.goal.text, median, varied, f"to reach {bound(verdict.goal)}", "yes" if verdict.reached else "no")
