"""The page on testing one's own dataset: its code runs from top to bottom, and its tables leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swift_loader.testing import check, faulty
from tests.watching import run_warm

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "testing.md"

#: What the page's code takes for given.
BEFORE = """
import numpy as np
from swift_loader.testing import lab
lab._WEIGHED = 500  # thousands of samples are looked at for time and memory, which the page need not wait for

from swift_loader import worker_info

class GoodImages:
    def __init__(self, folder):
        self.count = {"train": 60}[folder]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = np.full((3, 32, 32), index, np.uint8)
        top = worker_info().rng.integers(8)
        return {"index": index, "image": image[:, top : top + 24]}

class Images(GoodImages):
    def __init__(self, folder):
        super().__init__(folder)
        self.rng = np.random.default_rng()
        names = set("cat dog bird fish horse cow frog deer ship truck".split())
        self.number_of = {name: number for number, name in enumerate(names)}

    def __getitem__(self, index):
        boxes = np.ones((1 + index % 3, 4), np.float32)
        label = self.number_of[("cat", "dog", "bird", "fish")[index % 4]]
        return {"image": super().__getitem__(index)["image"] + self.rng.random(), "boxes": boxes, "label": label}
"""


@pytest.mark.slow  # each check by itself: tests/integration/testing
def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path):
    pieces = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    told = run_warm(tmp_path, BEFORE + "".join(pieces) + "\nprint('all of it')", timeout_s=100)
    assert told.endswith("all of it\n")
    for words in ("2 problems, 1 not looked at", "boxes has shape (1, 4) in sample 0 and (", "PYTHONHASHSEED"):
        assert words in told
        assert words in PAGE.read_text()  # what was pasted is what is printed


def first_cells(text: str) -> set[str]:
    rows = re.findall(r"^\| (.+?) \| ", text, re.MULTILINE)
    return {name.strip('"') for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_tables_name_every_check_and_every_fault():
    assert first_cells(PAGE.read_text()) == set(check.CHECKS) | set(faulty._FAULTS) | {"unsendable"}


def test_the_page_that_is_shown_fits_80_columns():
    (shown,) = re.findall(r"^```\n(Images.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert max(map(len, shown.splitlines())) <= 80
