"""Writing shards: samples into tar files with their tables, against webdataset's writer; and opening large sets.

Measures: one process that writes random bytes into files in memory, shards of 64 MB. `--of 150kB`: 150,528 bytes a
sample, `30kB`: 30,000, `1kB`: 1,024; each with nothing else in the sample, and ours also with a class, which is a
member and a column. The clock runs from `create` to the written catalog; the bytes are there before it. webdataset's is
its `ShardWriter`, with shards as large.
`--of open`: a catalog of 1,000, 100,000, and 1,000,000 shards of 1,000 samples each is opened from its file in memory:
its digest and all that it says are checked. The file is in the page cache.

The ceiling is the same bytes written to such files by 1 MB at once, with a checksum of all of them.

Leaves out: encoding, disks, the network.

Command: `python -m benchmarks.shard_write [--of 30kB]`. The last tables are `results/shard_write*.txt`.

Caveat: memory in which files are has to be found and cleared by the kernel, which is most of the time of large samples.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import duel
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
MAXSIZE = 64_000_000
#: Of a case: enough that what happens once does not count.
SAMPLES = {"150kB": (150_528, 6_000), "30kB": (30_000, 20_000), "1kB": (1_024, 150_000)}
SHARDS = {"10^6": 1_000, "10^8": 100_000, "10^9": 1_000_000}
POOL = 64


class Random:
    """Samples of random bytes, which are made before."""

    def __init__(self, nbytes: int, count: int, *, has_class: bool) -> None:
        self.pool = [os.urandom(nbytes) for _ in range(POOL)]
        self.count, self.has_class = count, has_class

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= self.count:
            raise IndexError(index)
        data = self.pool[index % POOL]
        return {"bin": data, "cls": index % 1000} if self.has_class else {"bin": data}


def written(
    settings: Settings, nbytes: int, count: int, write: Callable[[Random, Path], object], **kind: Any
) -> Result:
    """Writes sets until the time is over; the rates of the best."""
    source = Random(nbytes, settings.size(count), has_class=kind.get("has_class", False))
    best, ends = float("inf"), time.perf_counter() + settings.seconds
    while best == float("inf") or time.perf_counter() < ends:
        folder = Path(tempfile.mkdtemp(dir=MEMORY))
        began = time.perf_counter()
        write(source, folder)
        best = min(best, time.perf_counter() - began)
        shutil.rmtree(folder)
    return {"samples_per_s": len(source) / best, "gb_per_s": len(source) * nbytes / best / 1e9}


def ours(source: Random, folder: Path) -> None:
    """By `create`."""
    from swift_loader import shards

    shards.create(source, folder, maxsize=MAXSIZE, shuffle=False)


def webdatasets(source: Random, folder: Path) -> None:
    """By `ShardWriter`."""
    import webdataset

    with webdataset.ShardWriter(f"{folder}/shard-%06d.tar", maxsize=MAXSIZE, verbose=0) as writer:
        for index, sample in enumerate(source):
            writer.write({"__key__": f"{index:09d}", **sample})


def plain(source: Random, folder: Path) -> None:
    """The bytes alone, a megabyte at once, digested."""
    from swift_loader.host.xxhash import WideDigest

    nbytes = len(source.pool[0])
    chunk = os.urandom(1 << 20)
    left, number, digest = nbytes * len(source), 0, WideDigest()
    while left > 0:
        with (folder / str(number)).open("wb", buffering=0) as file:
            for _ in range(0, min(left, MAXSIZE), 1 << 20):
                digest.update(chunk)
                file.write(chunk)
        left, number = left - MAXSIZE, number + 1


def case_open(settings: Settings, *, count: int) -> Result:
    """A catalog of so many shards is opened."""
    from swift_loader import shards
    from swift_loader.shards import catalog
    from swift_loader.shards.catalog import Shard

    count = settings.size(count)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        lines = (Shard(f"shard-{k:06d}.tar", 1000, 60_000_000, 59_900_000, 98_464, k, bytes(16)) for k in range(count))
        Path(folder, "index.swift").write_bytes(catalog.write(lines))
        store = shards.store_at(folder)
        best, ends = float("inf"), time.perf_counter() + min(2.0, settings.seconds)
        while best == float("inf") or time.perf_counter() < ends:
            began = time.perf_counter()
            found = shards.read_catalog(store)
            best = min(best, time.perf_counter() - began)
            assert found.samples == 1000 * count
            del found
    return {"milliseconds": best * 1000, "gb_per_s": (4096 + 144 * count) / best / 1e9}


def case_json(settings: Settings, *, count: int) -> Result:
    """A list of so many shards as JSON, which is how MosaicML and LitData keep theirs, is read; nothing is checked."""
    lines = [
        {"basename": f"shard-{k:06d}.mds", "bytes": 60_000_000, "samples": 1000, "hashes": {}}
        for k in range(settings.size(count))
    ]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder, "index.json")
        path.write_text(json.dumps({"version": 2, "shards": lines}))
        return {"milliseconds": best_ms(settings, lambda: json.loads(path.read_bytes()))}


def case_bytes(settings: Settings, *, count: int) -> Result:
    """As many bytes as a catalog of so many shards has, read and digested."""
    from swift_loader.host.xxhash import wide_digest_of

    nbytes = 4096 + 144 * settings.size(count)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder, "bytes")
        path.write_bytes(bytes(nbytes))
        best = best_ms(settings, lambda: wide_digest_of(path.read_bytes()))
    return {"milliseconds": best, "gb_per_s": nbytes / best / 1e6}


def best_ms(settings: Settings, act: Callable[[], object]) -> float:
    """The quickest of some seconds."""
    best, ends = float("inf"), time.perf_counter() + min(2.0, settings.seconds)
    while best == float("inf") or time.perf_counter() < ends:
        began = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - began)
    return best * 1000


def question(size: str, goal: Goal) -> Question:
    """The question for samples of one size."""
    case = partial(partial, written, nbytes=SAMPLES[size][0], count=SAMPLES[size][1])
    return Question(
        name="shard_write" if size == "150kB" else f"shard_write_{size}",
        title=f"Writing shards: {SAMPLES[size][0]:,} bytes a sample, one writer, into memory",
        metric="samples_per_s",
        unit="samples/s",
        seconds=3.0,
        variant=size,
        cases=(
            Case("swift", "ours", Side.OURS, case(write=ours)),
            Case("swift_class", "ours, with a class", Side.OURS, case(write=ours, has_class=True)),
            Case("webdataset", "webdataset ShardWriter", Side.TORCH, case(write=webdatasets)),
            Case("ceiling", "bytes alone, digested", Side.CEILING, case(write=plain)),
        ),
        columns=(Column("gb_per_s", "GB/s"),),
        goals=(goal, Goal("ours / webdataset", "swift", "webdataset", at_least=2)),
    )


QUESTIONS = (
    question("150kB", Goal("ours: 1.5 GB/s", "swift", at_least=1.5e9 / SAMPLES["150kB"][0])),
    question("30kB", Goal("ours", "swift", at_least=35_000)),
    question("1kB", Goal("ours", "swift", at_least=80_000)),
    Question(
        name="shard_open",
        title="Opening a set of shards: its catalog, all of it checked",
        metric="milliseconds",
        unit="ms",
        higher_is_better=False,
        seconds=2.0,
        variant="open",
        cases=(
            *(
                Case(f"samples_{name}", f"{name} samples, {count:,} shards", Side.OURS, partial(case_open, count=count))
                for name, count in SHARDS.items()
            ),
            Case("json", "100,000 shards in JSON", Side.TORCH, partial(case_json, count=100_000)),
            Case("bytes", "the bytes of 1,000,000", Side.CEILING, partial(case_bytes, count=1_000_000)),
        ),
        columns=(Column("gb_per_s", "GB/s"),),
        goals=tuple(
            Goal(f"{name} samples", f"samples_{name}", at_most=most)
            for (name, _), most in zip(SHARDS.items(), (5, 25, 300), strict=True)
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS, option="--of"))
