"""Bars, drawn by matplotlib: as a PNG, and as SVG that takes its colours from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

#: Colours that stand for those of the page, by their names there.
_INK, _GRID, _BAR, _MARKED = "#24292f", "#d0d7df", "#7f9fc4", "#d9661f"
_OF_PAGE = {_INK: "currentColor", _GRID: "var(--grid)", _BAR: "var(--bar)", _MARKED: "var(--marked)"}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "swift-loader",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_WIDTH_IN, _BAR_IN, _HEAD_IN = 8.0, 0.3, 0.85


class Bar(NamedTuple):
    """One bar."""

    label: str
    value: float | None
    """None: it could not be measured."""
    text: str
    """Beside it."""
    low: float | None = None
    high: float | None = None
    is_marked: bool = False


class Panel(NamedTuple):
    """Bars that have one scale."""

    title: str
    bars: Sequence[Bar]
    line: float | None = None
    """A value to compare all with."""
    line_label: str = ""


def png(panels: Sequence[Panel]) -> bytes:
    """A picture of the panels, one below the other."""
    with mpl.rc_context(_STYLE):
        out = io.BytesIO()
        _figure(panels).savefig(out, format="png", dpi=150, facecolor="white")
        return out.getvalue()


def svg(panels: Sequence[Panel]) -> str:
    """The same, to stand within a page."""
    with mpl.rc_context(_STYLE):
        out = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        _figure(panels).savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    for color, name in _OF_PAGE.items():
        text = text.replace(color, name)
    return text


def _figure(panels: Sequence[Panel]) -> Figure:
    heights = [_HEAD_IN + _BAR_IN * len(panel.bars) for panel in panels]
    figure = Figure(figsize=(_WIDTH_IN, sum(heights)), layout="constrained")
    plots = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, panel in zip(plots[:, 0], panels, strict=True):
        _draw(axes, panel)
    return figure


def _draw(axes: Any, panel: Panel) -> None:
    places = range(len(panel.bars))
    values = [bar.value or 0.0 for bar in panel.bars]
    colors = [_MARKED if bar.is_marked else _BAR for bar in panel.bars]
    axes.barh(places, values, height=0.66, color=colors, zorder=2)
    top = max([*values, *(bar.high or 0.0 for bar in panel.bars), panel.line or 0.0]) or 1.0
    for place, bar in enumerate(panel.bars):
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [place, place], color=_INK, linewidth=1, marker="|", zorder=3)
        axes.text(1.02 * top, place, bar.text, va="center", ha="left", fontsize=9, zorder=4)
    if panel.line is not None:
        axes.axvline(panel.line, color=_INK, linewidth=1, linestyle="--", zorder=1)
        axes.text(
            panel.line, -0.75, f"{panel.line_label} ", va="bottom", ha="right", fontsize=9, zorder=4,
        )  # fmt: skip
    axes.set_yticks(places, [bar.label for bar in panel.bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.28 * top)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 1.01 * top])
    axes.set_ylim(len(panel.bars) - 0.4, -1.0 if panel.line is not None else -0.6)
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.grid(axis="x", color=_GRID, linewidth=0.6, zorder=0)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
