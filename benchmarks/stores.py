"""Sets in a bucket: epochs of them beside epochs of the same shards in a folder.

Measures, by `--samples`: `raw`, 150 kB records, batches of 256; `jpeg`, 400x400 JPEG files of 30 kB, decoded, cropped,
resized to 224, float32, batches of 64; `first`, the first batch of 64 records through a proxy that waits 30 ms before
it answers and gives each connection 85 MB/s. Server (SeaweedFS), fetcher, workers (2) and training share the machine's
cores. Each side is a process of its own, by turns. `folder`: the same shards on the local disk. `bucket`: with memory
too small for the set, so each byte is downloaded in each epoch; `bucket, stays`: with the memory that is taken where
nothing is said, so the set is downloaded in the first epoch alone. `webdataset`: torch's DataLoader with webdataset,
which reads the same shards of the same server by curl. The figure is that of whole epochs after the first; `first`
counts from the construction of the dataset on, once workers are running, and from the call of the first step.

Leaves out: real networks and what they cost; several hosts; LitData's streaming.

Command: `python -m benchmarks.stores --samples raw`. The last table is `results/stores.txt`.

Caveat: server and client share the same cores here, so raw records are bound by both together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jpeg_workload import cropped, jpeg_files
from swift_loader import SwiftLoader
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.runs import Runs
from swift_loader.shards import ShardDataset, create, store_at
from swift_loader.shards.url import place_of
from swift_loader.stores.client import Client
from swift_loader.stores.credentials import Credentials
from swift_loader.stores.obstore import Objects

SHAPE = (3, 224, 224)
SIZES = {"raw": (8192, 256, 64 << 20), "jpeg": (6144, 64, 64 << 20), "first": (4096, 64, 64 << 20)}
WORKERS, EPOCHS, ROUNDS = 2, 3, 2
#: Of the fetcher, where nothing is to stay: room for what is open and what comes next, and for less than two sets.
MEMORY = {"raw": 1300 << 20, "jpeg": 500 << 20}
WAIT_S, RATE = 0.03, 85e6
LINGERS_S = 2.0


class Source:
    """The samples that the set is made of."""

    def __init__(self, kind: str) -> None:
        self._count = SIZES[kind][0]
        self._is_jpeg = kind == "jpeg"
        records = np.random.default_rng(0).integers(0, 256, (64, *SHAPE), np.uint8)
        self._pool: Any = jpeg_files(64) if self._is_jpeg else records

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"jpg" if self._is_jpeg else "x.npy": self._pool[index % 64], "cls": index % 1000}


def decoded(sample: Any) -> Any:
    return cropped(sample[0].convert("RGB")), sample[1]


def opened(kind: str, where: str, endpoint: str, memory: int | None = None) -> ShardDataset:
    client = Client(endpoint, Credentials.given("testkey", "testsecret")) if endpoint else None
    if kind == "jpeg":
        return ShardDataset(where, ("jpg", "cls"), transform=decoded, client=client, memory=memory)
    return ShardDataset(where, ("x.npy", "cls"), client=client, memory=memory)


def timed(loader: Any, count: int) -> float:
    """Samples a second, of the epochs after the first."""
    took = []
    for _ in range(EPOCHS):
        begun = time.perf_counter()
        rows = sum(len(batch[1]) for batch in loader)
        took.append(time.perf_counter() - begun)
        assert rows == count
    return (EPOCHS - 1) * count / sum(took[1:])


def epochs(kind: str, where: str, endpoint: str, memory: int | None) -> dict[str, Any]:
    dataset = opened(kind, where, endpoint, memory)
    with SwiftLoader.from_dataset(dataset, SIZES[kind][1], 1, WORKERS, seed=1) as loader:
        rate = timed(loader, len(dataset))
    gb_per_s = rate * dataset.catalog.nbytes / len(dataset) / 1e9
    return {"samples_per_s": rate, "gb_per_s": gb_per_s, "fetched": dataset.statistics()}


def of_webdataset(kind: str, where: str, endpoint: str) -> dict[str, Any]:
    import webdataset
    from torch.utils.data import DataLoader

    dataset = opened(kind, where, endpoint)
    client = Client(endpoint, Credentials.given("testkey", "testsecret"))
    count, nbytes = len(dataset), dataset.catalog.nbytes
    names = [dataset.catalog.name(number) for number in range(len(dataset.catalog.rows))]
    objects = Objects(place_of(where), client)
    urls = [f"pipe:curl -s -f '{objects.signed(name)}'" for name in names]
    stream = webdataset.WebDataset(urls, shardshuffle=len(urls), empty_check=False).shuffle(1000)
    if kind == "jpeg":
        stream = stream.decode("pil").to_tuple("jpg", "cls").map(decoded)
    else:
        stream = stream.decode().to_tuple("x.npy", "cls")
    batches = stream.batched(SIZES[kind][1])
    rate = timed(DataLoader(batches, batch_size=None, num_workers=WORKERS, multiprocessing_context="spawn"), count)
    return {"samples_per_s": rate, "gb_per_s": rate * nbytes / count / 1e9, "fetched": {}}


def first(where: str, endpoint: str) -> dict[str, Any]:
    begun = time.perf_counter()
    dataset = opened("first", where, endpoint)
    constructed = time.perf_counter()
    plan = EpochPlan(sample_count=len(dataset), batch_size=64, seed=1, mix=64, runs=Runs(dataset.runs()))
    dataset.follow(plan, 0)
    dataset.turn_to(0, 0)
    samples = dataset.__getitems__(plan.indices(0, 0, 0, 1)[0])
    assert len(samples) == 64
    return {"dataset_s": constructed - begun, "batch_s": time.perf_counter() - constructed}


def measured(words: list[str]) -> dict[str, Any]:
    """By a process of its own, with a fetcher of its own."""
    words = [sys.executable, "-m", "benchmarks.stores", *words]
    around = {**os.environ, "SWIFT_LOADER_FETCHER_LINGER_S": "0.5"}
    found = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=300, env=around)
    told: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return told


def upload(folder: Path, url: str, client: Client) -> None:
    store = store_at(url, client=client)
    for path in sorted(folder.iterdir()):
        store.replace(path.name, path.read_bytes())


def run(kind: str, rounds: int) -> None:
    from tests.s3_server import S3Server

    with tempfile.TemporaryDirectory() as folder, S3Server(Path(folder) / "server") as server:
        local = Path(folder) / "set"
        create(Source(kind), local, maxsize=SIZES[kind][2])
        url = f"s3://{server.bucket}/set"
        upload(local, url, Client(server.endpoint, Credentials.given(server.access_key, server.secret_key)))
        if kind == "first":
            run_first(url, server.port, rounds)
        else:
            run_epochs(kind, {"folder": str(local), "bucket": url}, server.endpoint, rounds)


def run_first(url: str, port: int, rounds: int) -> None:
    from tests.fault_proxy import FaultProxy

    told = []
    with FaultProxy(port) as proxy:
        proxy.shape(ttfb=WAIT_S, rate=RATE)
        for _ in range(rounds + 1):
            told.append(measured(["--side", "first", url, proxy.endpoint, "0"]))
            time.sleep(LINGERS_S)
    batches = ", ".join(f"{one['batch_s']:.2f}" for one in told)
    print(f"first batch of 64: {batches} s; the dataset: {min(one['dataset_s'] for one in told):.2f} s")


def run_epochs(kind: str, where: dict[str, str], endpoint: str, count: int) -> None:
    url = where["bucket"]
    how = {
        "folder": [kind, where["folder"], "", "0"],
        "bucket": [kind, url, endpoint, str(MEMORY[kind])],
        "bucket, stays": [kind, url, endpoint, "0"],
        "webdataset": ["webdataset-" + kind, url, endpoint, "0"],
    }
    sides: dict[str, list[dict[str, Any]]] = {name: [] for name in how}
    for _ in range(count):
        for name, words in how.items():
            sides[name].append(measured(["--side", *words]))
    for name, rounds in sides.items():
        best = max(rounds, key=lambda one: one["samples_per_s"])
        rates = ", ".join(f"{each['samples_per_s']:,.0f}" for each in rounds)
        print(f"{name:14} {best['samples_per_s']:10,.0f} samples/s {best['gb_per_s']:6.2f} GB/s   (rounds: {rates})")
    for name, other in (("bucket", "folder"), ("bucket, stays", "folder"), ("bucket", "webdataset")):
        pairs = zip(sides[name], sides[other], strict=True)
        ratios = ", ".join(f"{one['samples_per_s'] / two['samples_per_s']:.2f}" for one, two in pairs)
        print(f"{name} / {other}: {ratios}")
    print({name: value for name, value in sides["bucket"][-1]["fetched"].items() if value})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", choices=sorted(SIZES), default="raw")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--side", nargs=4)
    arguments = parser.parse_args()
    if arguments.side is None:
        run(arguments.samples, arguments.rounds)
        return
    kind, where, endpoint, memory = arguments.side
    if kind == "first":
        print(json.dumps(first(where, endpoint)))
    elif kind.startswith("webdataset-"):
        print(json.dumps(of_webdataset(kind.removeprefix("webdataset-"), where, endpoint)))
    else:
        print(json.dumps(epochs(kind, where, endpoint, int(memory) or None)))


if __name__ == "__main__":
    main()
