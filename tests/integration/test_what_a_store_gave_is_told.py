"""What a store gave, and what batches wanted of it, is told of a loader whose workers build the dataset themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch.utils.data import Subset

from swift_loader import SwiftLoader
from swift_loader.cli.boards import find
from swift_loader.shards import ShardDataset
from tests import elsewhere
from tests.s3_server import S3Server


@pytest.fixture(autouse=True)
def _ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.3")


def test_by_figures_report_trace_and_top(tmp_path: Path, s3_server: S3Server) -> None:
    local = elsewhere.set_in(tmp_path / "set", 320, 20_000)
    url = f"s3://{s3_server.bucket}/told"
    elsewhere.upload(local, url, elsewhere.client_of(s3_server))
    words = {"url": url, "fields": ("x.npy", "cls"), "client": elsewhere.client_of(s3_server)}
    trace = tmp_path / "trace.json"
    store = ""
    with SwiftLoader(ShardDataset, words, 16, 1, 2, seed=5, data_queue_size=2, trace_file=str(trace)) as loader:
        for _ in range(100):
            list(loader)
            store = next((one.shown.store for one in find() if one.shown.store), "")
            if store:
                break
        told, page = loader.statistics(), " ".join(loader.report().split())
    nbytes = sum(path.stat().st_size for path in local.iterdir())
    assert 0.9 * nbytes < told["store_rank_nbytes"] < 1.5 * nbytes  # all later epochs had it from memory
    assert told["store_hits_memory"]
    assert told["store_wanted_bytes_per_s"] > 0
    assert "of it for this consumer, batches want" in page
    assert "of it for this consumer" in store  # while it runs
    curves = {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "C"}
    assert {"store gives, MB/s", "batches take, MB/s", "workers that wait for the store"} <= curves


@pytest.mark.slow
def test_of_a_part_of_a_set(tmp_path: Path, s3_server: S3Server) -> None:
    local = elsewhere.set_in(tmp_path / "set", 320, 20_000)
    url = f"s3://{s3_server.bucket}/part"
    elsewhere.upload(local, url, elsewhere.client_of(s3_server))
    part = Subset(ShardDataset(url, ("x.npy", "cls"), client=elsewhere.client_of(s3_server)), range(160))
    with SwiftLoader.from_dataset(part, 16, 1, 0, seed=5) as loader:
        list(loader)
        assert loader.statistics()["store_rank_nbytes"] >= 160 * 20_000
