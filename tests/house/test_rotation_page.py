"""The page on reuse: the code of its sections on rotation and on the two other loaders runs, and its table is whole."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from swift_loader import RotationSetting
from tests.house.test_reuse_page import BEFORE
from tests.watching import run_warm

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "reuse.md"
TEXT = "## Rotation" + PAGE.read_text(encoding="utf-8").partition("## Rotation")[2]

GIVEN = """
from swift_loader import Cached, SwiftLoader

def augmented(folder):
    return Cached(Images(folder), then=lambda sample: sample)
"""
AFTER = """
from collections import Counter
assert Counter(int(label) for _, labels in batches for label in labels) == dict.fromkeys(range(480), 3)
print("all of it")
"""


def test_the_code_of_the_page_runs(tmp_path):
    pieces = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(pieces) == 3
    told = run_warm(tmp_path, BEFORE + GIVEN + "".join(pieces) + AFTER, timeout_s=100, PYTHONWARNINGS="error")
    assert " of all used again\n" in told
    assert told.endswith("all of it\n")


def test_the_table_names_every_key():
    table = TEXT.partition("| key |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` ", table, re.MULTILINE)) == sorted(
        field.name for field in fields(RotationSetting)
    )
