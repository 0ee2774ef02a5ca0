"""Datasets of a script of one's own: classes of `__main__`, lambdas, closures, and what workers do without."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.datasets import Surroundings
from tests.loaders import started, stream
from tests.slow import slow, start_methods
from tests.torch_datasets import TorchNumbers
from tests.watching import ROOT, run_warm

METHODS = start_methods

OF_MAIN = """
import sys
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
import numpy as np
from swift_loader import SwiftLoader

print("main runs")
SCALE = 3
Pair = namedtuple("Pair", "a b")

@dataclass
class Box:
    corner: Pair
    name: str

def scaled(number):
    return number * SCALE

class Base:
    def __len__(self):
        return 12

class Set(Base):
    def __init__(self, function, start=0):
        self.function, self.start = function, start

    def __getitem__(self, index):
        return Box(Pair(self.function(index), np.full(2, scaled(index))), f"box {self.start + index}")

class ByLength(Exception):
    pass

def closure(offset):
    return lambda number: number + offset

loader = SwiftLoader(Set, {"function": closure(100), "start": 5}, 4, 1, 2, shuffle=False, start_method=sys.argv[1],
                     worker_init=lambda info: None)
with loader:
    loader.start(0)
    for box in loader:
        assert type(box) is Box and type(box.corner) is Pair, type(box)
        print(box.corner.a.tolist(), box.corner.b[:, 1].tolist(), box.name[0])

collated = SwiftLoader(partial(Set, closure(1)), {}, 6, 1, 1, shuffle=False, start_method=sys.argv[1],
                       collate_fn=lambda boxes: (len(boxes), boxes[-1].name, scaled(2)))
with collated:
    collated.start(0)
    print(list(collated))
"""

EXPECTED = """main runs
[100, 101, 102, 103] [0, 3, 6, 9] box 5
[104, 105, 106, 107] [12, 15, 18, 21] box 9
[108, 109, 110, 111] [24, 27, 30, 33] box 13
[(6, 'box 5', 6), (6, 'box 11', 6)]
"""


@METHODS
def test_classes_lambdas_and_closures_of_main_reach_the_workers(method: str, tmp_path):
    """Without a guard around the script's code, which runs once."""
    assert run_warm(tmp_path, OF_MAIN, method) == EXPECTED


def test_a_script_that_has_no_file_works_too(tmp_path):
    result = subprocess.run(
        [sys.executable, "-", "forkserver"],
        input=OF_MAIN,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, EXPECTED, "")


WITH_TORCH = """
import sys
import torch
import torch.nn.functional as F
from swift_loader import SwiftLoader

MARK = "the trainer's main module"

class Set:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return str(("".join(["tor", "ch"]) in sys.modules, sys.modules["__main__"].__dict__.get("MARK")))

def model(x):
    return F.relu(torch.as_tensor(x))

with SwiftLoader(Set, {}, 4, 1, 2, start_method=sys.argv[1]) as loader:
    loader.start(0)
    print({told for batch in loader for told in batch})
"""


@pytest.mark.parametrize("method", ["forkserver", slow("spawn")])
def test_workers_do_not_load_torch_because_the_script_does(method: str, tmp_path):
    assert run_warm(tmp_path, WITH_TORCH, method) == "{'(False, None)'}\n"


BRINGS_TORCH = """
import sys
import torch
from swift_loader import SwiftLoader

def whole(index):
    return torch.full((2,), index)

class Set:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return whole(index), "torch" in sys.modules

with SwiftLoader(Set, {}, 4, 1, 2, shuffle=False) as loader:
    loader.start(0)
    print([(numbers[:, 0].tolist(), loaded.all().item()) for numbers, loaded in loader])
"""


def test_workers_load_torch_where_a_dataset_of_main_uses_it(tmp_path):
    assert run_warm(tmp_path, BRINGS_TORCH) == "[([0, 1, 2, 3], True), ([4, 5, 6, 7], True)]\n"


@pytest.mark.usefixtures("own_server")  # else it may have loaded torch for another loader
@pytest.mark.parametrize("method", ["forkserver", slow("spawn")])
def test_workers_of_an_imported_dataset_do_not_load_torch(method: str):
    import json

    with started(Surroundings, start_method=method) as loader:
        told = [json.loads(text) for batch in loader for text in batch]
    assert {one["torch"] for one in told} == {False}
    assert {one["threads"] for one in told} == {1}


@METHODS
def test_a_subclass_of_torchs_dataset_works_with_one_thread_per_worker(method: str):
    with started(TorchNumbers, {"count": 24}, start_method=method, shuffle=False) as loader:
        batches = list(loader)
    assert [tuple(batch["x"].shape) for batch in batches] == [(8, 2, 3)] * 3
    assert str(batches[0]["x"].dtype) == "torch.bfloat16"
    assert [int(row[0, 0]) for batch in batches for row in batch["x"]] == list(range(24))
    assert {int(number) for batch in batches for number in batch["threads"]} == {1}


def test_a_subclass_of_torchs_dataset_makes_the_same_stream_everywhere():
    streams = [
        [{**batch, "threads": None} for batch in stream(TorchNumbers, {"count": 40}, **settings)]
        for settings in ({"worker_per_consumer": 0}, {}, {"share_dataset": True}, {"worker_per_consumer": 4})
    ]
    assert all(one == streams[0] for one in streams)


def test_workers_have_the_scripts_folder_and_path(tmp_path):
    (tmp_path / "beside.py").write_text(
        "import os, pathlib\n"
        "class Set:\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, index): return os.getcwd() + ' ' + pathlib.Path('data.txt').read_text()\n"
    )
    (tmp_path / "data.txt").write_text("content")
    out = run_warm(
        tmp_path,
        """
import sys
from swift_loader import SwiftLoader
import beside
for method in ("forkserver", "spawn", "fork"):
    with SwiftLoader(beside.Set, {}, 4, 1, 1, start_method=method) as loader:
        loader.start(0)
        print({text for batch in loader for text in batch})
""",
    )
    assert out == f"{{'{tmp_path} content'}}\n" * 3


def test_what_a_dataset_prints_is_seen(tmp_path):
    out = run_warm(
        tmp_path,
        """
from swift_loader import SwiftLoader
class Set:
    def __init__(self): print("built in a worker")
    def __len__(self): return 4
    def __getitem__(self, index): return index
with SwiftLoader(Set, {}, 4, 1, 1) as loader:
    loader.start(0)
    list(loader)
""",
    )
    assert out == "built in a worker\n"


def test_a_dataset_that_starts_processes_itself_works(tmp_path):
    out = run_warm(
        tmp_path,
        """
import subprocess, sys
from swift_loader import SwiftLoader
class Set:
    def __len__(self): return 4
    def __getitem__(self, index):
        return int(subprocess.run([sys.executable, "-c", f"print({index})"], capture_output=True, check=True).stdout)
with SwiftLoader(Set, {}, 2, 1, 2, shuffle=False) as loader:
    loader.start(0)
    print([n for batch in loader for n in batch.tolist()])
""",
    )
    assert out == "[0, 1, 2, 3]\n"
