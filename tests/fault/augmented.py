"""Samples with augmentation, without torch: what is imported here, every worker that is spawned imports anew."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from swift_loader import worker_info
from tests.datasets import Numbers


class Augmented(Numbers):
    """Draws from every generator that a worker seeds, and from the one that threads have for themselves."""

    def __init__(self, count: int, *, shared_generators: bool = True) -> None:
        super().__init__(count)
        self.shared_generators = shared_generators

    def __getitem__(self, index: int) -> Any:
        info = worker_info()
        assert info is not None
        time.sleep(0.0005)
        drawn = [*info.rng.random(2)]
        if self.shared_generators:
            drawn += [random.random(), random.gauss(0, 1), np.random.random(), np.random.normal()]
        pixels = np.roll(np.arange(300, dtype=np.uint16) * index, int(1000 * drawn[0]))
        return {"index": index, "drawn": np.array(drawn), "pixels": pixels}
