"""Datasets whose samples are kept: each notes what it is asked for, and draws from every generator. No torch here."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader import Cached, worker_info
from tests.datasets import Numbers


class Asked(Numbers):
    """Adds each index that it is asked for to the file ``asked`` in ``folder``, which `asked` reads."""

    def __init__(self, folder: str, count: int = 48, **options: Any) -> None:
        super().__init__(count)
        self.folder = folder
        self.options = options
        self.epoch = 0

    def __getitem__(self, index: int) -> Any:
        fd = os.open(f"{self.folder}/asked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(fd, f"{index}\n".encode())
        finally:
            os.close(fd)
        time.sleep(self.options.get("seconds", 0.0))
        return self.sample(index)

    def sample(self, index: int) -> Any:
        info = worker_info()
        assert info is not None
        drawn = [info.rng.random(), random.random(), np.random.random(), random.gauss(0, 1)]
        return {"index": index, "drawn": np.array(drawn), "x": np.full((3, 8), index, np.uint8)}


class Texts(Asked):
    """Samples that have a text, which is drawn."""

    def sample(self, index: int) -> Any:
        return f"sample {index} {random.random()}", index


class Epochs(Asked):
    """Samples that tell for which epoch they were made."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def sample(self, index: int) -> Any:
        return index, self.epoch


class Several(Asked):
    """Samples of several forms, for lists."""

    def sample(self, index: int) -> Any:
        return np.full(index + 1, random.random())


class Wide(Asked):
    """Samples of several forms, whose arrays take up to 160 KB, and a number."""

    def sample(self, index: int) -> Any:
        rows = 20 + index * 37 % 60
        return {"image": np.arange(rows * 1000, dtype=np.uint16).reshape(rows, 1000) + index, "label": index}


class Large(Asked):
    """Samples of 64 KB."""

    def sample(self, index: int) -> Any:
        return np.full(1 << 16, int(256 * random.random()), np.uint8)


def shaken(sample: Any) -> Any:
    """An augmentation: drawn anew each time."""
    return {**sample, "then": np.array([random.random(), np.random.random()])}


def then_shaken(folder: str, **options: Any) -> Cached:
    """A dataset of which a part is kept."""
    return Cached(Asked(folder, **options), then=shaken)


def asked(folder: str | Path) -> list[int]:
    """What was asked for, in order."""
    path = Path(folder, "asked")
    return [int(line) for line in path.read_text().split()] if path.exists() else []


class Mixed(Asked):
    """Of 300 kB that are alike, and about 300 kB that are not."""

    def sample(self, index: int):
        return np.full(300_000, index, np.uint8), np.full(300_000 + 10 * index, index, np.uint8)


class Twice(Asked):
    """With a text, so that it is pickled."""

    def sample(self, index: int):
        image = np.full(70_000 + index, index, np.int16)
        return {"one": image, "other": image, "name": str(index)}


class Halves(Asked):
    """Samples of which a store of 64 KB takes half."""

    def sample(self, index: int):
        return bytes((index,)) * 2500
