"""Datasets that sets are made of by commands, in processes of their own."""

from __future__ import annotations

import time
from typing import Any

import numpy as np


class Pictures:
    """Pictures and classes; as slow as asked for."""

    def __init__(self, count: int = 200, seconds: float = 0.0) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return np.random.default_rng(index).integers(0, 255, (8, 8, 3), dtype=np.uint8), index % 10


class Drawn(Pictures):
    """What is drawn anew each time it is asked for."""

    def __getitem__(self, index: int) -> Any:
        return np.random.random(3).astype(np.float32), index % 10


class Broken(Pictures):
    """One of them raises, and one cannot be written."""

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise ValueError("this picture is broken")
        return super().__getitem__(index)


class Odd(Pictures):
    """One that cannot be written."""

    def __getitem__(self, index: int) -> Any:
        return {"x": object() if index == 7 else index}
