"""Results as text, at most 80 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from benchmarks.question import Goal, Question
from benchmarks.score import Figures, Spread, Verdict, spread

WIDTH = 80
LABEL_WIDTH = 30
NUMBER_WIDTH = 10
#: From which size on a figure is printed in thousands or millions, and with how many decimals.
SCALES = ((999_500, 1e6, "M"), (9_995, 1e3, "k"), (0, 1.0, ""))
DIGITS = ((99.95, 0), (9.995, 1), (0.0995, 2), (0.00995, 3), (0, 4))


def short(value: float | None) -> str:
    """A figure with three digits that matter: 12.3k, 1.50, 0.042."""
    if value is None:
        return "-"
    size = abs(value)
    if size == 0:
        return "0"
    scale, suffix = next((scale, suffix) for least, scale, suffix in SCALES if size >= least)
    digits = next(digits for least, digits in DIGITS if size / scale >= least)
    return f"{value / scale:.{digits}f}{suffix}"


def bound(goal: Goal) -> str:
    """What a goal asks for, in short."""
    if goal.at_least is not None:
        return f">= {goal.at_least:g}"
    if goal.at_most is not None:
        return f"<= {goal.at_most:g}"
    return ""


def table(
    question: Question,
    figures: Figures,
    columns: dict[str, Sequence[float | None]],
    verdicts: Sequence[Verdict],
    notes: Sequence[str],
) -> str:
    """The whole result of a question.

    Args:
        question: what was asked.
        figures: each case's figure in each round.
        columns: for each case, the medians of the question's further columns.
        verdicts: the goals, judged.
        notes: lines to print below (failures, the machine).
    """
    shown = question.columns[: (WIDTH - LABEL_WIDTH) // NUMBER_WIDTH - 3]
    lines = [question.title[:WIDTH], ""]
    lines.append(row("case", [question.unit, "lowest", "highest", *(column.header for column in shown)]))
    lines.append("-" * WIDTH)
    for case in question.cases:
        found = spread(figures.get(case.name, ()))
        extra = [short(value) for value in columns.get(case.name, ())][: len(shown)]
        lines.append(row(case.label, [*numbers(found), *extra]))
    lines += ["", row("goal (median of ratios)", ["median", "lowest", "highest", "to reach", ""]), "-" * WIDTH]
    for verdict in verdicts:
        word = {None: "", True: "yes", False: "NO"}[verdict.reached]
        lines.append(row(verdict.goal.text, [*numbers(verdict.spread), bound(verdict.goal), word]))
    said = [line[:WIDTH] for note in notes for line in wrapped(note)]
    return "\n".join([*lines, "", *said]) + "\n"


def wrapped(note: str) -> list[str]:
    """A note's own lines, folded to the width."""
    return [part for line in note.splitlines() for part in textwrap.wrap(line, WIDTH, subsequent_indent="    ") or [""]]


def row(label: str, cells: Sequence[str]) -> str:
    """One line: a label to the left, cells to the right, cut to the width."""
    line = f"{label[:LABEL_WIDTH]:<{LABEL_WIDTH}}" + "".join(f"{cell[:NUMBER_WIDTH]:>{NUMBER_WIDTH}}" for cell in cells)
    return line.rstrip()[:WIDTH]


def numbers(found: Spread | None) -> list[str]:
    """Median, lowest and highest as cells."""
    if found is None:
        return ["-", "-", "-"]
    return [short(found.median), short(found.lowest), short(found.highest)]
