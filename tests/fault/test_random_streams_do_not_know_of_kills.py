"""Random streams and order are the same with and without kills: two epochs with augmentation, all bytes hashed.

Some ten workers are killed in each run, at seeded random steps; one run without workers says what is right.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

from tests.fault.augmented import Augmented
from tests.fault.oracle import BATCH, World, differences, record
from tests.loaders import started
from tests.slow import slow
from tests.torch_datasets import TorchAugmented
from tests.watching import until, workers

STEPS = 20
EPOCHS = 2


class Hashed:
    """A loader, and the hash of every byte that came out of it in its order."""

    def __init__(self, loader: Any) -> None:
        self.loader, self.digest = loader, hashlib.sha256()

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            for key, values in batch.items():
                self.digest.update(key.encode())
                self.digest.update(np.ascontiguousarray(values))
            yield batch


class Kills:
    """Kills a worker at five random steps of each epoch."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.steps: set[int] = set()
        self.count = 0

    def __call__(self, step: int) -> None:
        if step == 0:
            self.steps = set(self.chance.sample(range(1, STEPS - 4), 5))
        if step in self.steps:
            try:
                self.chance.choice(until(workers)).kill()
                self.count += 1
            except psutil.NoSuchProcess:
                return


def run(dataset: type, kills: Kills | None = None, **settings: Any) -> tuple[str, list]:
    data = {"count": STEPS * BATCH, "shared_generators": settings.get("worker_threads", 1) == 1}
    with started(dataset, data, **{"batch_size": BATCH, **settings}) as loader:
        hashed = Hashed(loader)
        found = record(hashed, EPOCHS, kills)
    return hashed.digest.hexdigest(), found


@pytest.mark.parametrize(
    ("dataset", "method", "random_per", "threads"),
    [
        (TorchAugmented, "forkserver", "batch", 1),
        (TorchAugmented, "forkserver", "sample", 1),
        # Threads share the generators of the process, so what a sample draws from those is a matter of luck.
        (Augmented, "forkserver", "batch", 4),
        # Workers that are spawned would load torch anew each time, for a second each.
        slow(Augmented, "spawn", "sample", 1),
        slow(Augmented, "spawn", "batch", 1),
    ],
)
def test_a22_two_epochs_are_the_same_bytes_with_ten_kills_and_without(
    dataset: type, method: str, random_per: str, threads: int
):
    settings = {"random_per": random_per, "worker_threads": threads}
    right, expected = run(dataset, worker_per_consumer=0, **settings)
    kills = Kills(seed=7)
    found, delivered = run(dataset, kills, **{**World(method, 2, in_thread=False).settings, **settings})
    assert differences(delivered, expected) == []
    assert found == right
    assert kills.count >= 8


def test_a22_the_hash_knows_of_an_augmentation_that_was_drawn_otherwise():
    one, _ = run(Augmented, worker_per_consumer=0)
    other, _ = run(Augmented, worker_per_consumer=0, random_per="sample")
    assert one != other
