"""A set in a folder and the same set in a bucket, and a training that tells which batches it saw."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader import SwiftLoader
from swift_loader.shards import ShardDataset, create, make_client
from tests.s3_server import S3Server

COUNT, BATCH, SEED = 320, 16, 7
FIELDS = ("x.npy", "cls")


def write_set(folder: Path, nbytes: int = 20_000) -> int:
    """Some thirty shards; what they take."""
    samples = [
        {"x.npy": np.random.default_rng(number).integers(0, 256, nbytes, np.uint8), "cls": number}
        for number in range(COUNT)
    ]
    return create(samples, folder, maxcount=10).nbytes


def put_set(folder: Path, server: S3Server, key: str) -> None:
    """The same, in a bucket."""
    for path in folder.iterdir():
        server.put(f"{key}/{path.name}", path.read_bytes())


def opened(server: S3Server, endpoint: str, key: str, **more: Any) -> ShardDataset:
    """The set in the bucket, asked for at that address."""
    client: Any = make_client(endpoint, server.access_key, server.secret_key)
    return ShardDataset(f"s3://{server.bucket}/{key}", FIELDS, client=client, **more)


class Trained:
    """What a training saw in an epoch."""

    def __init__(self, dataset: Any, workers: int = 2, **words: Any) -> None:
        self.batches: list[str] = []
        self.samples: list[int] = []
        self.waits_s: list[float] = []
        with SwiftLoader.from_dataset(dataset, BATCH, 1, workers, seed=SEED, **words) as loader:
            before = time.monotonic()
            for batch in loader:
                self.waits_s.append(time.monotonic() - before)
                arrays, numbers = batch[0], batch[1]
                data = arrays.numpy().tobytes() + numbers.numpy().tobytes()
                self.batches.append(hashlib.blake2b(data, digest_size=8).hexdigest())
                self.samples += numbers.tolist()
                self.after_a_batch()
                before = time.monotonic()
            self.left_out = loader.statistics()["samples_skipped"]
            self.state = loader.state_dict()

    def after_a_batch(self) -> None:
        """For those who do something meanwhile."""
