"""The pages on traces, on top and on replays: their code runs, and what they show is what is printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from swift_loader.telemetry.trace import KEPT_STEPS
from tests.trace_rules import breaches, read
from tests.watching import run_warm

DOCS = Path(__file__).resolve().parents[2] / "swift_loader" / "docs"

#: What the pages' code takes for given.
BEFORE = f"""
import os, sys
import numpy as np
import torch
os.environ["PATH"] = {str(Path(sys.executable).parent)!r} + ":" + os.environ["PATH"]

class Images:
    def __init__(self, folder):
        self.count = {{"train": 40}}[folder]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {{"image": index + np.random.random((3, 4)), "label": index}}

class Damaged(Images):
    def __getitem__(self, index):
        if index == 9:
            raise ValueError("damaged")
        return super().__getitem__(index)

class Locked(Images):
    def __init__(self, folder, key):
        super().__init__(folder)
        assert key.reveal() == "correct-horse-battery-staple"

def train_step(batch):
    assert batch["image"].shape[1:] == (3, 4)

"""


def code_of(page: str) -> str:
    return "".join(re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", ["trace.md", "top.md", "replay.md"])
def test_the_code_of_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path):
    told = run_warm(tmp_path, BEFORE + code_of(page) + "\nprint('all of it')", timeout_s=100, KINETO_LOG_LEVEL="99")
    assert told.endswith("all of it\n")
    if page == "trace.md":
        assert breaches(read((tmp_path / "runs" / "trace.json").read_text())) == []
        assert f"the last {KEPT_STEPS:,} steps" in (DOCS / page).read_text()
    if page == "replay.md":
        command = r"swift-loader replay --state (/.*)/runs/failed\.replay --epoch 0 --step 1 --rank 0"
        found = re.fullmatch(command, told.splitlines()[0])
        assert found is not None, told
        assert found[1] == str(tmp_path)
        assert re.search(f"^{command}$", (DOCS / page).read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", ["top.md", "replay.md"])
def test_what_is_shown_fits_80_columns(page: str):
    shown = re.findall(r"^```\n(\$ .*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    assert max(len(line) for text in shown for line in text.splitlines()) <= 80
