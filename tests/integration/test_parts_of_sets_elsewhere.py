"""Parts of a set in a bucket, and plans that go to no runs: fetched ahead of need, and little besides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Subset

from swift_loader import SwiftLoader
from swift_loader.plan.weighted import WeightedPlan
from swift_loader.shards import ShardDataset
from tests import elsewhere
from tests.s3_server import S3Server
from tests.slow import slow

FIELDS, COUNT, NBYTES = ("x.npy", "cls"), 1200, 60_000
WAYS: dict[str, Callable[[ShardDataset], tuple[Any, dict[str, Any]]]] = {
    "weighted": lambda set_: (set_, {"plan": WeightedPlan(np.arange(COUNT) % 3, 16, samples_per_epoch=320)}),
    "subset": lambda set_: (Subset(set_, np.random.default_rng(0).permutation(COUNT)[:120].tolist()), {}),
    "in order": lambda set_: (Subset(set_, range(100, 500)), {"shuffle": False}),
    "selection": lambda set_: (set_.where(cls=lambda number: number % 10 == 3), {}),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return elsewhere.set_in(tmp_path_factory.mktemp("set") / "local", COUNT, NBYTES, 16 << 20)


@pytest.mark.parametrize("way", [slow("weighted"), "subset", *map(slow, ("in order", "selection"))])
def test_what_steps_need_is_fetched_ahead_and_little_besides(
    local: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.2")
    url = f"s3://{s3_server.bucket}/parts"
    elsewhere.upload(local, url, elsewhere.client_of(s3_server))
    there = ShardDataset(url, FIELDS, client=elsewhere.client_of(s3_server), memory=(96 << 20) + list(WAYS).index(way))
    streams, numbers = [], set()
    for base in (ShardDataset(local, FIELDS), there):
        dataset, words = WAYS[way](base)
        told = []
        with SwiftLoader.from_dataset(dataset, 16, 1, 2, seed=5, data_queue_size=2, **words) as loader:
            for batch in loader:
                told.append(elsewhere.digest(batch))
                numbers |= set(batch[1].tolist())
        streams.append(told)
    assert streams[0] == streams[1]
    counts = there.statistics() or {}
    assert counts["runs"] > 0  # fetched because the plan says so, before anybody waited
    # A quarter of what is fetched together is wanted, at least; and first batches come alone, maybe a second time.
    assert counts["nbytes"] < 4 * len(numbers) * NBYTES + 10e6
