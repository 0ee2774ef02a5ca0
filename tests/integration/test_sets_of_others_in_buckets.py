"""Sets that others wrote are read from a bucket as from a folder, and fetched ahead: by their heads, or by tables."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swift_loader import SwiftLoader
from swift_loader.shards import ShardDataset, index
from tests import elsewhere
from tests.s3_server import S3Server

SHARDS, EACH = 6, 100


@pytest.fixture(autouse=True)
def _ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.3")


def data_of(number: int) -> bytes:
    return np.random.default_rng(number).bytes(34_000 + number)


def write_mds(folder: Path) -> Path:
    """As MosaicML's streaming does, of samples that are of several sizes."""
    folder.mkdir()
    shards = []
    for shard in range(SHARDS):
        samples = [
            struct.pack("<I", len(data)) + data + struct.pack("<q", number)
            for number in range(shard * EACH, (shard + 1) * EACH)
            for data in [data_of(number)]
        ]
        head = 4 * (len(samples) + 2)
        ends = head + np.cumsum([0, *map(len, samples)])
        name = f"shard.{shard:05d}.mds"
        (folder / name).write_bytes(struct.pack("<I", EACH) + ends.astype("<u4").tobytes() + b"".join(samples))
        shards.append({
            "format": "mds", "version": 2, "samples": EACH, "compression": None, "zip_data": None,
            "raw_data": {"basename": name, "bytes": int(ends[-1])},
            "column_names": ["data", "number"], "column_encodings": ["bytes", "int64"], "column_sizes": [None, 8],
        })  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return folder


def write_tars(folder: Path) -> Path:
    folder.mkdir()
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard}.tar", "w") as file:
            for number in range(shard * EACH, (shard + 1) * EACH):
                member = tarfile.TarInfo(f"{number:06d}.bin")
                member.size = len(data_of(number))
                file.addfile(member, io.BytesIO(data_of(number)))
    return folder


def apart(do: Any) -> None:
    """By a process of its own: this one may fork."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            do()
            code = 0
        finally:
            os._exit(code)
    assert not os.waitpid(pid, 0)[1]


def seen(dataset: ShardDataset, epochs: int = 2) -> list[Any]:
    with SwiftLoader.from_dataset(
        dataset, 20, 1, 2, seed=3, collate_fn=elsewhere.as_bytes, data_queue_size=1
    ) as loader:
        return [batch for _ in range(epochs) for batch in loader]


def test_mosaicmls_shards_as_they_are_and_with_checksums(tmp_path: Path, s3_server: S3Server) -> None:
    local = write_mds(tmp_path / "mds")
    url, client = f"s3://{s3_server.bucket}/mds-as-it-is", elsewhere.client_of(s3_server)
    elsewhere.upload(local, url, client)
    expected = seen(ShardDataset(local))
    dataset = ShardDataset(url, client=client)
    assert seen(dataset) == expected
    told = dataset.statistics()
    assert told["runs"] >= SHARDS  # by the plan, and not sample by sample
    url += "-checked"
    elsewhere.upload(local, url, client)
    apart(lambda: index(url, checksums=True, client=client))
    checked = ShardDataset(url, client=client)
    assert checked.generation == 1
    assert seen(checked) == expected


def test_tars_whose_tables_lie_in_a_folder_here(tmp_path: Path, s3_server: S3Server) -> None:
    local = write_tars(tmp_path / "tars")
    url, client = f"s3://{s3_server.bucket}/tars-of-others", elsewhere.client_of(s3_server)
    elsewhere.upload(local, url, client)
    apart(lambda: index(url, index_to=tmp_path / "index", client=client))
    dataset = ShardDataset(url, index=tmp_path / "index", client=client)
    assert len(dataset) == SHARDS * EACH
    batches = seen(dataset, epochs=1)
    assert sorted(chain.from_iterable(batches)) == sorted(map(data_of, range(len(dataset))))
    assert dataset.statistics()["runs"] >= SHARDS
