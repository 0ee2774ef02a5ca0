"""The page on reuse: its code runs from top to bottom, and its table names every key."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from swift_loader import CacheSetting
from tests.watching import run_script

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "reuse.md"

#: What the page's code takes for given, and what its last lines are held against.
BEFORE = """
import numpy as np

class Images:
    def __init__(self, folder):
        self.count = {"train": 48}[folder]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with open("asked", "a") as file:
            file.write("i")
        image = np.zeros((8, 8), np.uint8)
        image[:, 0] = index
        return image, index
"""
AFTER = """
from pathlib import Path
import torch
assert len(Path("asked").read_text()) == 3 * 48  # once for each of the three caches
assert not torch.equal(torch.cat(first), torch.cat(second))
assert torch.cat(first).sum() == torch.cat(second).sum()
print("all of it")
"""


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path):
    pieces = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    told = run_script(tmp_path, BEFORE + "".join(pieces[:3]) + AFTER, timeout_s=100, PYTHONWARNINGS="error")
    assert told.startswith("48 made, ")
    assert told.endswith("all of it\n")


def test_the_table_names_every_key():
    table = PAGE.read_text().partition("| key |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` ", table, re.MULTILINE) == [field.name for field in fields(CacheSetting)]
