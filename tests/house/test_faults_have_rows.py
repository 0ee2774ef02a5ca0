"""Every test of a fault is named after its row: of the table that was given, or beyond it and told in the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "swift_loader" / "docs" / "faults.md"
HEADING = "## Further faults"
_NUMBERS = {
    "a": (*range(1, 10), *range(11, 19), 21),
    "b": (*range(1, 9), *range(10, 13), *range(14, 17)),
    "c": (1, *range(3, 8), *range(9, 14), 15, 16, 17, 19),
    "d": (*range(1, 5), *range(6, 15)),
}
#: Written down here, since the table itself is no part of the project. A10 and others were never given.
ROWS = {f"{letter}{number}" for letter, numbers in _NUMBERS.items() for number in numbers}
#: About the oracle and the benchmarks, not about a fault.
OTHERS = {"test_the_oracle_finds_torch_wrong.py"}
_ROW = re.compile(r"[abcdsf]\d+")  # stores and servers have tables of their own


def _tests() -> dict[str, set[str]]:
    """The rows of each test function, from its own name and its file's."""
    found = {}
    for path in sorted((ROOT / "tests" / "fault").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())) if path.name not in OTHERS else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[f"{path.name}::{node.name}"] = _rows(node.name) or _rows(path.stem)
    return found


def _rows(name: str) -> set[str]:
    """The rows at the beginning of a test's name."""
    words = name.removeprefix("test_").split("_")
    count = next((at for at, word in enumerate(words) if not _ROW.fullmatch(word)), len(words))
    return set(words[:count])


def _rows_beyond() -> set[str]:
    _, _, rest = PAGE.read_text().partition(f"\n{HEADING}\n")
    section = rest.partition("\n## ")[0]
    return {row.lower() for row in re.findall(r"^\| ([A-D]\d+) \|", section, flags=re.MULTILINE)}


def test_every_test_of_a_fault_names_its_row():
    assert not [test for test, rows in _tests().items() if not rows]


def test_every_row_has_a_test():
    tested = set().union(*_tests().values())
    assert ROWS - tested == set()


def test_rows_beyond_the_table_are_those_of_the_page():
    tested = set().union(*_tests().values())
    assert {row for row in tested - ROWS if row[0] in _NUMBERS} == _rows_beyond()


def test_the_rows_of_a_name_are_those_at_its_beginning():
    assert _rows("test_a11_a12_one_that_hangs_for_b5") == {"a11", "a12"}
    assert _rows("test_a_worker_is_killed") == set()
    assert _rows("test_a8_poison") == {"a8"}
