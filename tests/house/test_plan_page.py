"""The page on order, ranks, epochs and resuming: its code runs, and its tables are those that are counted by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.plan import test_even_makes_the_steps_of_all_consumers_equal as counted
from tests.watching import run_warm

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "plan.md"
TABLES = {"`shuffle=True`": counted.SHUFFLED, "`shuffle=False`": counted.IN_ORDER, "`elastic=True`": counted.ELASTIC}


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path: Path):
    pieces = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    allowed = 'import warnings\nwarnings.filterwarnings("ignore", message="consumers take from 3 to 4 batches")\n'
    script = allowed + "".join(pieces) + "\nprint('all of it')"
    assert run_warm(tmp_path, script, PYTHONWARNINGS="error") == "all of it\n"


def rows_of(text: str, heading: str) -> list[tuple[str, bool, list[str], str, int]]:
    """A table's rows: even, drop_last, the batches of the four ranks, steps, samples left out; "any" is all four."""
    table = text.partition(f"### {heading}\n")[2].partition("| `even`")[2].partition("\n\n")[0]
    head, _, *lines = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()]
    ranks = [list(map(int, re.findall(r"\d", cell))) for cell in head if cell.startswith("rank")]
    rows = []
    for even, drop_last, *batches, steps, left_out in lines:
        of_rank = {rank: cell for cell, them in zip(batches, ranks, strict=True) for rank in them}
        evens = ("balance", "pad", "drop", "none") if even == "any" else (even.strip('`"'),)
        sizes = [of_rank[rank] for rank in range(4)]
        rows += [(one, drop_last == "True", sizes, steps, int(left_out)) for one in evens]
    return rows


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_has_the_numbers_that_the_plan_is_tested_with(heading: str):
    rows = rows_of(PAGE.read_text(), heading)
    assert [(even, drop_last, ranks, left_out) for even, drop_last, ranks, _, left_out in rows] == TABLES[heading]
    for _, _, ranks, steps, _ in rows:
        counts = [len(batches.split()) for batches in ranks]
        assert steps == (str(counts[0]) if len(set(counts)) == 1 else ", ".join(map(str, counts)))
