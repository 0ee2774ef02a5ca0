"""A set in a bucket, and trainings that read it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader import SwiftLoader
from swift_loader.shards import ShardDataset, create
from swift_loader.stores.client import Client
from swift_loader.stores.credentials import Credentials


class Arrays:
    """Samples that tell which they are."""

    def __init__(self, count: int, nbytes: int) -> None:
        self.count, self.nbytes = count, nbytes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.random.default_rng(index).integers(0, 256, self.nbytes, np.uint8), "cls": index}


def client_of(server: Any, endpoint: str | None = None) -> Client:
    return Client(endpoint or server.endpoint, Credentials.given(server.access_key, server.secret_key))


def upload(folder: Path, url: str, client: Client) -> None:
    """By a process of its own: this one may fork."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            from swift_loader.shards import store_at

            store = store_at(url, client=client)
            for path in sorted(folder.iterdir()):
                store.replace(path.name, path.read_bytes())
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert not status


def set_in(folder: Path, count: int = 600, nbytes: int = 20_000, maxsize: int = 2 << 20) -> Path:
    create(Arrays(count, nbytes), folder, maxsize=maxsize)
    return folder


def stream(
    dataset: ShardDataset,
    workers: int = 2,
    epochs: int = 1,
    batch: int = 32,
    at: dict[int, Callable[[], object]] | None = None,
) -> list[str]:
    """What each batch was; ``at`` some, counted through all epochs, something is done."""
    told: list[str] = []
    with SwiftLoader.from_dataset(dataset, batch, 1, workers, seed=5) as loader:
        for one in chain.from_iterable(iter(loader) for _ in range(epochs)):
            told.append(digest(one))
            if at is not None and (do := at.get(len(told))) is not None:
                do()
    return told


def digest(batch: Any) -> str:
    x, number = batch
    return hashlib.blake2b(x.numpy().tobytes() + number.numpy().tobytes(), digest_size=8).hexdigest()


def as_bytes(samples: list[Any]) -> list[bytes]:
    """A batch of samples that others wrote."""
    return [bytes(one["data"] if "data" in one else one["bin"]) for one in samples]
