"""A set as a stream in torch's DataLoader: the same for any number of workers, however they are started."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from swift_loader import ConfigError, SwiftLoader
from swift_loader.shards import RemoteDataset, create, make_client
from tests.s3_server import S3Server
from tests.slow import slow
from tests.streams import changed

COUNT, BATCH = 103, 8
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    server = tmp_path_factory.mktemp("server")
    samples = [{"x.npy": np.full((2, 2), number, np.int64), "cls": number} for number in range(COUNT)]
    create(samples, server / "bucket" / "set", maxcount=40)  # three shards
    return server


@pytest.fixture
def remote(server: Path) -> Iterator[RemoteDataset]:
    dataset = RemoteDataset(make_client(server), "bucket", "set").decode().to_tuple("x.npy", "cls")
    yield dataset
    vars(dataset).clear()  # pytest holds it for longer than the test


def labels(loader: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in loader]


@pytest.mark.parametrize(
    ("method", "workers", "persistent"),
    [
        slow("fork", 3, False),
        ("fork", 3, True),
        *(slow("fork", workers, persistent) for workers in (1, 16) for persistent in (False, True)),
        *(slow(m, workers, p) for m in ("spawn", "forkserver") for workers in (1, 3) for p in (False, True)),
    ],
)
def test_it_is_the_same_for_any_workers(remote: Any, method: str, workers: int, persistent: bool) -> None:
    dataset = changed(remote).batched(BATCH)
    dataset.set_epoch(0)
    alone = [labels(DataLoader(dataset, batch_size=None)) for _ in range(3)]
    assert sorted(itertools.chain(*alone[0])) == list(range(COUNT))
    assert alone[0] != alone[1]

    dataset.set_epoch(0)
    loader = DataLoader(
        dataset, num_workers=workers, batch_size=None, multiprocessing_context=method, persistent_workers=persistent
    )
    assert len(loader) == 13
    first, second = list(loader), labels(x for x in loader)
    assert isinstance(first[0][1], torch.Tensor)
    assert [labels(first), second] == alone[:2]
    for number, _ in enumerate(loader):  # the third epoch is left early
        if number == 1:
            break
    dataset.set_epoch(2)
    assert labels(loader) == alone[2]


def test_two_loaders_at_once_are_two_epochs(remote: RemoteDataset) -> None:
    dataset = changed(remote).batched(BATCH)
    dataset.set_epoch(0)
    alone = [labels(dataset), labels(dataset)]
    dataset.set_epoch(0)
    both = [iter(DataLoader(dataset, num_workers=2, batch_size=None, multiprocessing_context="fork")) for _ in "ab"]
    found: list[list[list[int]]] = [[], []]
    for pair in zip(*both, strict=True):
        for place, batch in enumerate(pair):
            found[place].append(batch[1].tolist())
    assert sorted(found) == sorted(alone)


def test_one_by_one_torch_makes_the_batches(remote: RemoteDataset) -> None:
    loader = DataLoader(changed(remote), num_workers=2, batch_size=BATCH, multiprocessing_context="fork", timeout=60)
    found = [batch[1].tolist() for batch in (x for x in loader)]
    assert sorted(itertools.chain(*found)) == list(range(COUNT))
    shuffled = DataLoader(changed(remote).by_index(), batch_size=BATCH, shuffle=True)
    assert sorted(itertools.chain(*labels(shuffled))) == list(range(COUNT))


def test_swift_loader_takes_it_by_index(remote: RemoteDataset) -> None:
    with SwiftLoader.from_dataset(changed(remote), BATCH, nb_consumer=1, worker_per_consumer=2, seed=1) as loader:
        loader.start(0)
        found = [(batch[0].clone(), batch[1].tolist()) for batch in loader]
    assert sorted(itertools.chain(*(numbers for _, numbers in found))) == list(range(COUNT))
    assert all((array[:, 0, 0] - 1).tolist() == numbers for array, numbers in found)


def test_swift_loader_says_where_batches_are_made(remote: RemoteDataset) -> None:
    loader = SwiftLoader.from_dataset(changed(remote).batched(BATCH), BATCH, nb_consumer=1, worker_per_consumer=1)
    with loader, pytest.raises(ConfigError, match="give batch_size to the loader"):
        loader.start(0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_set_in_a_store_is_the_same_stream(
    remote: RemoteDataset, server: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.3")
    for path in (server / "bucket" / "set").iterdir():
        s3_server.put(f"torch/set/{path.name}", path.read_bytes())
    client = make_client(s3_server.endpoint, s3_server.access_key, s3_server.secret_key)
    there = RemoteDataset(client, s3_server.bucket, "torch/set").decode().to_tuple("x.npy", "cls")
    here, there = changed(remote).batched(BATCH), changed(there).batched(BATCH)
    loader = DataLoader(there, num_workers=3, batch_size=None, multiprocessing_context=method, persistent_workers=True)
    for _ in range(2):
        for mine, other in zip(here, loader, strict=True):
            assert (mine[0] == other[0].numpy()).all()
            assert mine[1].tolist() == other[1].tolist()
    told = there.statistics()
    assert told is not None
    assert told["requests"] > 3
    del there, loader


@pytest.mark.slow
def test_webdatasets_own_stages_go_on_from_there(remote: RemoteDataset, tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    create([{"png": np.full((4, 4, 3), n, np.uint8), "cls": n} for n in range(20)], tmp_path / "b" / "s")
    source = RemoteDataset(make_client(tmp_path), "b", "s")
    pipeline = source.webdataset().decode("rgb8").to_tuple("png", "cls").batched(5)
    found = [pixels[:, 0, 0, 0].tolist() == numbers.tolist() for pixels, numbers in pipeline]
    assert found == [True] * 4
