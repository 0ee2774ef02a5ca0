"""Row SZ: memory below what a training needs at once, samples that are large, catalogs that name a million shards."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Subset

from swift_loader import NoRoom, SwiftLoader
from swift_loader.shards import ShardDataset, catalog
from swift_loader.shards.opening import describe
from swift_loader.shards.store import store_at
from tests import elsewhere
from tests.s3_server import S3Server

pytest.importorskip("obstore")


@pytest.fixture(autouse=True)
def _fetchers_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.3")


def resident(pid: int) -> int:
    """Memory of a process, with what it shares."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


def opened(
    tmp_path: Path, server: S3Server, count: int, nbytes: int, *, each: int = 1, **more: Any
) -> tuple[ShardDataset, int]:
    """A set of such samples in a bucket, so many in each shard; and what it takes."""
    local = elsewhere.set_in(tmp_path / f"set-{nbytes}", count, nbytes, maxsize=each * (nbytes + 8192))
    url = f"s3://{server.bucket}/little-{count}-{nbytes}"
    elsewhere.upload(local, url, elsewhere.client_of(server))
    whole = sum(path.stat().st_size for path in local.iterdir())
    return ShardDataset(url, ("x.npy", "cls"), client=elsewhere.client_of(server), **more), whole


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a single sample")
def test_a_training_whose_runs_do_not_fit_is_told_so_and_goes_on(tmp_path: Path, s3_server: S3Server) -> None:
    dataset, nbytes = opened(tmp_path, s3_server, 640, 40_000, each=10, memory=4_000_000)
    with SwiftLoader.from_dataset(dataset, 16, 1, 2, seed=1) as loader, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        numbers = [int(number) for batch in loader for number in batch[1]]
        loader.statistics()
    assert any(re.match(r"memory=4,000,000 is less than the \d+ MB", str(one.message)) for one in caught)
    assert sorted(numbers) == list(range(640))
    told = dataset.statistics() or {}
    assert told["nbytes"] < 1.5 * nbytes
    assert resident(told["pid"]) < 250 << 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a single sample")
def test_a_batch_that_does_not_fit_is_an_error_with_the_numbers(tmp_path: Path, s3_server: S3Server) -> None:
    dataset, _ = opened(tmp_path, s3_server, 8, 400_000, memory=1_000_000)
    with (
        SwiftLoader.from_dataset(dataset, 4, 1, 2, seed=1) as loader,
        pytest.raises(NoRoom, match=r"1\.6 MB, and the fetcher's memory has 1\.0 MB: give it more"),
    ):
        list(loader)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:a single sample")
def test_samples_of_100_mb_in_less_memory_than_are_mixed(tmp_path: Path, s3_server: S3Server) -> None:
    """Twelve samples are open at a time, which is 1.2 GB, and there are 800 MB."""
    dataset, nbytes = opened(tmp_path, s3_server, 12, 100_000_000, memory=800_000_000)
    with SwiftLoader.from_dataset(dataset, 2, 1, 2, seed=1, data_queue_size=1) as loader:
        assert sorted(int(number) for batch in loader for number in batch[1]) == list(range(12))
    told = dataset.statistics() or {}
    assert told["nbytes"] < 2 * nbytes  # first batches ask for themselves, and some of them again
    assert resident(told["pid"]) < 900 << 20


@pytest.mark.soak
def test_a_million_shards(tmp_path: Path, s3_server: S3Server) -> None:
    local = elsewhere.set_in(tmp_path / "set", 64, 10_000, maxsize=18_192)
    there = sorted(local.glob("shard-*"))
    store = store_at(local)
    lines = [describe(store, path.name, path.stat().st_size).shard for path in there]
    more = [replace(lines[0], name=f"shard-{number:07d}.tar") for number in range(1_000_000 - len(lines))]
    for path in local.glob("index*"):
        path.unlink()
    (local / catalog.NAME).write_bytes(catalog.write([*lines, *more], generation=1))
    url = f"s3://{s3_server.bucket}/million"
    elsewhere.upload(local, url, elsewhere.client_of(s3_server))
    dataset = ShardDataset(url, ("x.npy", "cls"), client=elsewhere.client_of(s3_server), memory=200_000_000)
    some = Subset(dataset, range(sum(line.samples for line in lines)))
    with SwiftLoader.from_dataset(some, 8, 1, 2, seed=1) as loader:
        numbers = np.concatenate([batch[1].numpy() for batch in loader])
        workers = [resident(pid) for pid in loader.worker_pids]
    told = dataset.statistics() or {}
    assert sorted(numbers.tolist()) == list(range(64))
    assert max(*workers, resident(told["pid"])) < 2 << 30
