"""The page for those who come from torch: its code runs from top to bottom, and its tables leave no argument out."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from swift_loader import SwiftLoader
from swift_loader.settings.arguments import Settings
from swift_loader.settings.keywords import OF_TORCH
from tests.watching import run_script

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "coming_from_torch.md"

#: What the page's code takes for given, and a count of the samples that each piece of it trains on.
BEFORE = """
import warnings
import numpy as np
import torch

warnings.filterwarnings("ignore", message="'pin_memory' argument")  # torch's: there is no GPU here
torch.set_num_threads(1)

class Images:
    def __init__(self, folder):
        self.count = {"train": 300, "test": 97}[folder]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return np.full((3, 4, 4), index % 10, np.float32), index % 10

class WholeBatches(Images):
    def __init__(self):
        super().__init__("test")

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return np.stack([image] * 5), torch.tensor([label] * 5)

rank, world_size, device = 0, 1, torch.device("cpu")
difficulties = np.arange(300)[::-1]
weights = np.arange(300) % 2
taken = 0

def train_step(images, labels):
    global taken
    assert images.shape[1:] == (3, 4, 4)
    assert isinstance(labels, torch.Tensor)
    taken += len(labels)

def predict(images):
    return images[:, 0, 0, 0].long()
"""
AFTER_EACH = """
print(taken)
taken = 0
"""
AT_THE_END = """
assert right == samples == 97
print("all of it")
"""


def pieces() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path):
    script = BEFORE + "".join(piece + AFTER_EACH for piece in pieces()) + AT_THE_END
    told = run_script(tmp_path, script, timeout_s=80, TQDM_DISABLE="1")  # nothing else may be said on standard error
    *counts, end = told.split("\n")[:-1]
    assert end == "all of it"
    one_epoch, whole_batches_of_32 = 300, 288
    assert list(map(int, counts)) == [
        *(2 * whole_batches_of_32, 2 * whole_batches_of_32),  # torch's and ours
        one_epoch,  # from a dataset that exists
        *(2 * one_epoch, 2 * one_epoch),  # torch's sampler, and ours
        2 * 97,  # epoch 0, twice
        one_epoch,  # with random numbers
        *(0, 0),  # the checkpoint and the evaluation count for themselves
        one_epoch + one_epoch // 10,  # a curriculum
        one_epoch,  # weighted
        5 * 97,  # batches that the dataset made
        one_epoch,  # with a bar
    ]


def names_in_first_cells(text: str) -> set[str]:
    rows = re.findall(r"^\| (.+?) \| ", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_tables_name_every_argument_of_torchs_loader():
    arguments = set(inspect.signature(DataLoader.__init__).parameters) - {"self"}
    around = {"DistributedSampler", "sampler.set_epoch(epoch)", "get_worker_info()", "StatefulDataLoader"}
    assert arguments | around <= names_in_first_cells(PAGE.read_text())


def rows_of(text: str) -> dict[str, tuple[str, str]]:
    """What stands beside each name of the first column, without the marks."""
    plain = re.sub(r"\[([^\]]*)\]\([^)\s]*\)", r"\1", text).replace("`", "").replace("**", "")
    return {
        name: (here, told) for name, here, told in re.findall(r"^\| (\w+) \| (.*?) ?\| (.*) \|$", plain, re.MULTILINE)
    }


@pytest.mark.parametrize("name", OF_TORCH)
def test_an_error_tells_what_the_page_tells(name: str):
    here, told = rows_of(PAGE.read_text())[name]
    way = OF_TORCH[name]
    assert set(way.here) <= set(re.findall(r"\w+", here))
    assert way.told.lower() in f"{here} {told}".lower()


def test_every_argument_of_torchs_that_is_none_of_ours_has_its_sentence():
    ours = {*inspect.signature(SwiftLoader).parameters, *Settings.__optional_keys__}
    theirs = set(inspect.signature(DataLoader.__init__).parameters) - {"self"}
    assert theirs - ours == set(OF_TORCH)


def test_an_argument_that_is_left_out_would_be_seen():
    assert names_in_first_cells("| `a` | `b` | c |\n|---|---|---|\n| `c`, `d` | | `e` |\n`f` | g\n") == {"a", "c", "d"}
