"""The page on reuse: its code runs from top to bottom, and its table names every key."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from swift_loader import CacheSetting, RotationSetting
from tests.watching import run_warm

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "reuse.md"

#: What the page's code takes for given, and what its lines on caches and its last lines are held against. Epochs are
#: longer than all that is made ahead, or the fifth epoch's samples would be made anew while the second is gone through.
BEFORE = """
import numpy as np

class Images:
    def __init__(self, folder):
        self.count = {"train": 480}[folder]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with open("asked", "a") as file:
            file.write("i")
        image = np.zeros((8, 8), np.int64)
        image[:, 0] = index
        return image, index
"""
AFTER_CACHES = """
from pathlib import Path
import torch
assert len(Path("asked").read_text()) == 3 * 480  # once for each of the three caches
assert not torch.equal(torch.cat(first), torch.cat(second))
assert torch.cat(first).sum() == torch.cat(second).sum()
"""
AFTER = """
assert torch.cat(uses).bincount().tolist() == [3] * 480
print("all of it")
"""


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path):
    pieces = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = BEFORE + "".join(pieces[:3]) + AFTER_CACHES + "".join(pieces[3:]) + AFTER
    told = run_warm(tmp_path, script, timeout_s=100, PYTHONWARNINGS="error")
    assert told.startswith("480 made, ")
    assert told.endswith("all of it\n")


def test_the_tables_name_every_key():
    tables = PAGE.read_text().split("| key |")[1:]
    named = [set(re.findall(r"^\| `(\w+)` ", table.partition("\n\n")[0], re.MULTILINE)) for table in tables]
    assert named == [{field.name for field in fields(setting)} for setting in (CacheSetting, RotationSetting)]
