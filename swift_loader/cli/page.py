"""A page that stands by itself: one file, nothing is loaded from elsewhere, readable in light and in dark. Pure."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

_STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #24292f; --soft: #57606a; --grid: #d0d7df;
  --bar: #7f9fc4; --marked: #d9661f; --box: #f3f5f8; }
@media (prefers-color-scheme: dark) { :root { --ground: #15191e; --ink: #e3e8ee; --soft: #9aa5b1; --grid: #39424d;
  --bar: #5d80a8; --marked: #f0883e; --box: #1f252c; } }
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 52rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { font-size: 1.1rem; } .soft { color: var(--soft); font-size: 0.9rem; }
pre { background: var(--box); border-radius: 6px; overflow-x: auto; padding: 0.8rem 1rem; }
.wide { overflow-x: auto; } svg { height: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { border-bottom: 1px solid var(--grid); padding: 0.35rem 0.5rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.marked td { color: var(--marked); font-weight: 600; }
"""


class Table(NamedTuple):
    """Cells as they are shown."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: int | None = None
    """The row that is chosen."""


class Page(NamedTuple):
    """What stands on it, from top to bottom."""

    title: str
    verdict: str
    svg: str
    table: Table
    code: str = ""
    notes: Sequence[str] = ()
    footer: str = ""


def as_html(page: Page) -> str:
    """The page as a file. All is text but ``svg``, which must be trusted."""
    code = f"<h2>To paste</h2>\n<pre><code>{html.escape(page.code)}</code></pre>" if page.code else ""
    notes = "\n".join(f"<p>{html.escape(note)}</p>" for note in page.notes)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(page.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{html.escape(page.title)}</h1>
<p class="verdict">{html.escape(page.verdict)}</p>
{code}
<h2>Measured</h2>
<div class="wide">{page.svg}</div>
<div class="wide">{_table(page.table)}</div>
{notes}
<p class="soft">{html.escape(page.footer)}</p>
</body>
</html>
"""


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.head)
    lines = [f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>"]
    for number, row in enumerate(table.rows):
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        mark = ' class="marked"' if number == table.marked else ""
        lines.append(f"<tr{mark}>{cells}</tr>")
    return "\n".join([*lines, "</tbody>\n</table>"])
