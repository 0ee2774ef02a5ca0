"""Datasets whose batches are made again: they draw in every way, or raise."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import torch

from swift_loader import worker_info
from tests.datasets import Box, Numbers, Point


class Draws(Numbers):
    """Draws in every way that a dataset may."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        keyed = worker_info().rng.random(3)
        return {
            "index": index,
            "python": random.random(),
            "numpy": np.random.random(),
            "torch": torch.rand(2),
            "keyed": keyed,
        }


class ToldEpochs(Draws):
    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "epoch": self.epoch}


class DrawsInThreads(Numbers):
    def __getitem__(self, index: int) -> Any:
        point = Point(index + 0.5, worker_info().rng.random(3))
        return {"boxes": [Box(point, f"box {index}"), (index, None)], "raw": b"%d" % index}


class Fails(Numbers):
    def __init__(self, at: int, held: Any = None) -> None:
        super().__init__(16)
        self.at = at

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            raise ValueError(f"sample {index} is bad")
        return index


class DrawsAndFails(Draws):
    def __getitem__(self, index: int) -> Any:
        if index % 5 == 3:
            raise ValueError(f"sample {index} is bad")
        return super().__getitem__(index)


def first_and_last(samples: list[Any]) -> Any:
    return {"first": samples[0]["index"], "last": samples[-1]["keyed"], "noise": torch.rand(2), "all": samples}


def encoded(batch: Any) -> bytes:
    return pickle.dumps({key: np.asarray(value) for key, value in batch.items()})
