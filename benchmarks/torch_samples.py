"""Torch's samples: how many batches per second there are of what most datasets return, which is tensors.

Measures: nine kinds of samples, each of a class that stands in the script, as users have it: 128 floats as a tensor
and an int; the same in a dict; a dict of two tensors; torch's own TensorDataset; a row of an array through
`torch.from_numpy` and a label through `torch.tensor`; images as ToTensor makes them (3x224x224 float32) and an int; a
Hugging Face dataset with `with_format("torch")`, whose whole batches come from `__getitems__`; tokens out of a memmap,
as nanoGPT takes them (two rows of 1,024 int64); sequences of several lengths and a collate function with
`pad_sequence`. Shuffled, batches of 32, 2 workers, a consumer that sums a few numbers of each batch. The clock runs
after a first epoch, over whole epochs: at least three, and at least two seconds. Ceilings: torch's DataLoader without
workers, and two processes that fetch and collate in a loop and send nothing.

Leaves out: starting (see `first_batch`); files and decoding; what the consumer does.

Command: `python -m benchmarks.torch_samples`. The last table is `results/torch_samples.txt`.

Caveat: on two cores, two workers and a consumer compete, while two loops have a core each. Where a batch takes 40 us to
make, whoever sends it anywhere is slower than who does not.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, TensorDataset

from benchmarks import duel
from benchmarks.laps import Weigh, run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.serial_loops import serial_batches_per_s
from benchmarks.sides import Work, build_in_process, build_swift, build_torch

BATCH_SIZE = 32
WIDTH = 128
TOKENS = 1024
TOKEN_FILE = 4_000_000
CLASSES = 1000


class TensorAndInt(Dataset[Any]):
    """A row of a tensor, and its label."""

    def __init__(self, count: int) -> None:
        self.features = torch.rand(count, WIDTH)
        self.labels = [index % CLASSES for index in range(count)]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return self.features[index], self.labels[index]


class Named(TensorAndInt):
    """The same by name."""

    def __getitem__(self, index: int) -> Any:
        return {"x": self.features[index], "y": self.labels[index]}


class DictOfTensors(Dataset[Any]):
    """The same by name, with labels as a tensor."""

    def __init__(self, count: int) -> None:
        self.features = torch.rand(count, WIDTH)
        self.labels = torch.arange(count) % CLASSES

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return {"features": self.features[index], "label": self.labels[index]}


class FromNumpy(Dataset[Any]):
    """Tensors made of a row of an array, and of a number."""

    def __init__(self, count: int) -> None:
        self.features = np.random.default_rng(0).random((count, WIDTH), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.features[index]), torch.tensor(index % CLASSES)


class Images(Dataset[Any]):
    """Decoded images, and what ToTensor does to them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.decoded = np.random.default_rng(0).integers(0, 256, (64, 224, 224, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        image = torch.from_numpy(self.decoded[index % 64]).permute(2, 0, 1).contiguous()
        return image.to(torch.float32).div(255), index % CLASSES


class MemmapTokens(Dataset[Any]):
    """Tokens and the same one further on."""

    def __init__(self, count: int, path: str) -> None:
        self.count = count
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        at = index * 7919 % (len(self.tokens) - TOKENS - 1)
        x = torch.from_numpy(self.tokens[at : at + TOKENS].astype(np.int64))
        y = torch.from_numpy(self.tokens[at + 1 : at + 1 + TOKENS].astype(np.int64))
        return x, y


class Sequences(Dataset[Any]):
    """Sequences of 8 to 63 tokens, and a label."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.tokens = torch.arange(CLASSES)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        at = index % (CLASSES - 64)
        return self.tokens[at : at + 8 + index % 56], index % CLASSES


def padded(samples: list[Any]) -> tuple[Any, Any]:
    """Sequences as one tensor, with zeros behind the shorter ones."""
    sequences = pad_sequence([sequence for sequence, _ in samples], batch_first=True)
    return sequences, torch.tensor([label for _, label in samples])


def tensor_dataset(count: int) -> Any:
    """Torch's own."""
    return TensorDataset(torch.rand(count, WIDTH), torch.arange(count) % CLASSES)


def hugging_face(count: int) -> Any:
    """A table whose rows come as dicts of tensors."""
    from datasets import Dataset as Table

    features = np.random.default_rng(0).random((count, WIDTH), dtype=np.float32)
    table = Table.from_dict({"features": list(features), "label": list(range(count))})
    return table.with_format("torch")


def labels_at(key: Any) -> Weigh:
    """Weighs a batch by its labels."""
    return lambda batch: (len(batch[key]), int(batch[key].sum()))


def weigh_tokens(batch: Any) -> tuple[int, int]:
    """Rows, and the sum of the first token of each."""
    return len(batch[0]), int(batch[0][:, 0].sum())


@cache
def token_file() -> str:
    """A file of random tokens, which goes when this process ends."""
    folder = _kept["folder"] = tempfile.TemporaryDirectory(prefix="swift-tokens-")
    path = Path(folder.name) / "train.bin"
    np.random.default_rng(0).integers(0, 50_000, TOKEN_FILE, dtype=np.uint16).tofile(path)
    return str(path)


_kept: dict[str, Any] = {}


@dataclass(frozen=True)
class Kind:
    """One way to have samples."""

    name: str
    label: str
    dataset_class: Callable[..., Any]
    epoch_batches: int
    weigh: Weigh
    collate_fn: Callable[[list[Any]], Any] | None = None
    takes_file: bool = False
    to_torch: float | None = None
    """At least so many times torch's."""
    to_none: float | None = None
    """At least that share of what no workers reach."""
    to_loops: float | None = None
    """At least that share of what two loops reach."""

    def work(self, settings: Settings) -> Work:
        """The workload."""
        kwargs: dict[str, Any] = {"count": settings.size(self.epoch_batches) * BATCH_SIZE}
        if self.takes_file:
            kwargs["path"] = token_file()
        return Work(self.dataset_class, kwargs, BATCH_SIZE, settings.seed, collate_fn=self.collate_fn)


KINDS = (
    Kind("pair", "tensor, int", TensorAndInt, 512, labels_at(1), to_torch=10, to_none=1),
    Kind("named", "dict: tensor, int", Named, 512, labels_at("y"), to_torch=10),
    Kind("dict", "dict of tensors", DictOfTensors, 512, labels_at("label")),
    Kind("tensors", "TensorDataset", tensor_dataset, 512, labels_at(1), to_torch=10),
    Kind("numpy", "from_numpy", FromNumpy, 512, labels_at(1), to_torch=5, to_loops=0.8),
    Kind("images", "image, int", Images, 16, labels_at(1)),
    Kind("hugging", "Hugging Face", hugging_face, 64, labels_at("label")),
    Kind("tokens", "memmap tokens", MemmapTokens, 256, weigh_tokens, takes_file=True),
    Kind("padded", "pad_sequence", Sequences, 256, labels_at(1), collate_fn=padded),
)
MISSING = () if find_spec("datasets") else ("hugging",)
WITHOUT = "Without the Hugging Face dataset: the package `datasets` is not installed here."


def steady(build: Callable[[], Any], kind: Kind, settings: Settings) -> Result:
    """Whole epochs of a loader that has run for one already."""
    loader = build()
    for _ in loader:
        pass
    return run_epochs(lambda: loader, kind.weigh, settings).result(work=kind.name)


def case_swift(settings: Settings, kind: Kind) -> Result:
    """Ours."""
    return steady(build_swift(kind.work(settings)), kind, settings)


def case_torch(settings: Settings, kind: Kind) -> Result:
    """Torch's, whose workers stay from epoch to epoch."""
    return steady(build_torch(kind.work(settings), persistent=True), kind, settings)


def case_in_process(settings: Settings, kind: Kind) -> Result:
    """Torch's without workers."""
    return steady(build_in_process(kind.work(settings)), kind, settings)


def case_loops(settings: Settings, kind: Kind) -> Result:
    """Two processes that send nothing."""
    return {"batches_per_s": serial_batches_per_s(kind.work(settings), min(1.0, settings.seconds))}


def cases_of(kind: Kind) -> tuple[Case, ...]:
    """The sides of one kind."""
    sides = (
        ("swift", "ours", Side.OURS, case_swift),
        ("torch", "torch", Side.TORCH, case_torch),
        ("in_process", "no workers", Side.CEILING, case_in_process),
        ("loops", "two loops", Side.CEILING, case_loops),
    )
    return tuple(
        Case(f"{kind.name}_{name}", f"{kind.label}: {label}", side, partial(run, kind=kind), group=kind.name)
        for name, label, side, run in sides
    )


def goals_of(kind: Kind) -> tuple[Goal, ...]:
    """Ours beside each other side of one kind."""
    ours = f"{kind.name}_swift"
    return (
        Goal(f"{kind.label} / torch", ours, f"{kind.name}_torch", at_least=kind.to_torch),
        Goal(f"{kind.label} / none", ours, f"{kind.name}_in_process", at_least=kind.to_none),
        Goal(f"{kind.label} / loops", ours, f"{kind.name}_loops", at_least=kind.to_loops),
    )


THERE = tuple(kind for kind in KINDS if kind.name not in MISSING)
QUESTION = Question(
    name="torch_samples",
    title="Torch's samples: what most datasets return; batch 32, 2 workers",
    metric="batches_per_s",
    unit="batches/s",
    seconds=2.0,
    cases=tuple(case for kind in THERE for case in cases_of(kind)),
    columns=(Column("samples_per_s", "samples/s"), Column("cpu_ms_per_batch", "CPU ms")),
    goals=tuple(goal for kind in THERE for goal in goals_of(kind)),
    notes=(WITHOUT,) if MISSING else (),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    if MISSING and "--case" not in sys.argv:
        sys.stderr.write(WITHOUT + "\n")
    raise SystemExit(duel.main(QUESTIONS))
