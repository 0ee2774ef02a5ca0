"""The dataset of the faults. In a file of its own, since workers import it: they need not load what the tests do."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

COUNT = 160


class Traced:
    """Samples that say who they are, and draw random numbers in every way that a worker seeds."""

    def __init__(self, count: int = COUNT, *, augment: bool = True) -> None:
        self.count, self.augment = count, augment

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = random.random() + np.random.random() if self.augment else 0.0
        return {"index": index, "noise": noise, "pixels": np.full((3, 8), index * 7 % 251, np.uint8)}
