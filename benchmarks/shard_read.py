"""Reading samples of shards on one core: what a worker does, without the loader around it.

Measures, by `--of`:
`raw`: 4,096 records of 150,528 bytes and a class, in shards of 64 MB, in the order of a shuffled epoch, batches of 256,
put into slots that are warm, each checked there; and the same asked for sample by sample. The ceiling is the same bytes
copied from the same places by numpy, record by record, and digested.
`1kB`: the same with 262,144 samples of 1,024 bytes in shards of 16 MB, so that a batch is of some fifty of them; beside
it the same samples in the order of the set, and as rows (`create(rows=True)`).

Everything is in files in memory, which count as page cache. Leaves out: disks, processes, the loader.

Command: `python -m benchmarks.shard_read [--of 1kB]`. The last tables are `results/shard_read*.txt`.

Caveat: one core alone has more of the memory's speed than each of several. A process has 128 shards open: of more,
each is opened and mapped again in every epoch, a millisecond for each, which is nothing beside 64 MB, and as much as
all else beside 4 MB (0.50 M samples a second in 208 shards of that size).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import duel
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.shard_write import MEMORY
from swift_loader.host.xxhash import digest_of
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.runs import Runs
from swift_loader.shards import ShardDataset, create

SAMPLES = {"raw": (150_528, 4_096, "64MB"), "1kB": (1_024, 262_144, "16MB")}
BATCH, SLOTS, POOL, LANES = 256, 4, 64, 64


class Records:
    """So many bytes each, and a class."""

    def __init__(self, nbytes: int, count: int) -> None:
        rng = np.random.default_rng(0)
        self._pool = [rng.integers(0, 256, nbytes, dtype=np.uint8) for _ in range(POOL)]
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x.npy": self._pool[index % POOL], "cls": index}


def case(settings: Settings, *, of: str, read: str, rows: bool = False) -> Result:
    """A shuffled epoch, or one in order, several times."""
    nbytes, count, maxsize = SAMPLES[of]
    count = settings.size(count)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        create(Records(nbytes, count), folder, maxsize=maxsize, rows=rows)
        dataset = ShardDataset(folder, ("x.npy", "cls"))
        plan = EpochPlan(
            sample_count=count, batch_size=BATCH, mix=LANES, shuffle=read != "in order", runs=Runs(dataset.runs())
        )
        steps = plan.step_count(0, 0)
        asked = [np.asarray(batch) for batch in plan.indices(0, 0, 0, steps) if len(batch) == BATCH]
        slots = [(np.zeros((BATCH, nbytes), np.uint8), np.zeros(BATCH, np.int64)) for _ in range(SLOTS)]
        put = {"copied": _copied, "one by one": _one_by_one}.get(read, _at_once)(dataset, asked)
        seconds = _best(put, asked, slots, settings)
        if read != "copied":
            _check(dataset, asked[-1], slots[(len(asked) - 1) % SLOTS])
    return {"samples_per_s": len(asked) * BATCH / seconds, "gb_per_s": len(asked) * BATCH * nbytes / seconds / 1e9}


def _best(put: Callable[[Any, Any], object], asked: Sequence[Any], slots: Sequence[Any], settings: Settings) -> float:
    """The seconds of the quickest of all epochs there is time for."""
    seconds, ends = [], time.perf_counter() + settings.seconds
    while len(seconds) < 2 or time.perf_counter() < ends:
        began = time.perf_counter()
        for number, indices in enumerate(asked):
            put(indices, slots[number % SLOTS])
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _check(dataset: ShardDataset, indices: Any, rows: Any) -> None:
    for row in (0, BATCH - 1):
        pixels, number = dataset[int(indices[row])]
        if number != rows[1][row] or not (pixels == rows[0][row]).all():
            raise ValueError("another sample")


def _at_once(dataset: ShardDataset, _: Sequence[Any]) -> Callable[[Any, Any], object]:
    return dataset.read_into


def _one_by_one(dataset: ShardDataset, _: Sequence[Any]) -> Callable[[Any, Any], object]:
    """As who asks for samples does, and torch's loader with them."""

    def put(indices: Any, rows: Any) -> None:
        for row, index in enumerate(indices.tolist()):
            rows[0][row], rows[1][row] = dataset[index]

    return put


def _copied(dataset: ShardDataset, asked: Sequence[Any]) -> Callable[[Any, Any], None]:
    """Numpy's copy of each record, and its digest; where it lies is known before."""
    places = []
    for indices in asked:
        which, inside = dataset.catalog.locate(indices)
        batch = []
        for shard, sample in zip(which.tolist(), inside.tolist(), strict=True):
            one = dataset._reading.shards[shard]
            number = one.table.field_numbers["x.npy"]
            begin = int(one.table.entries[sample, number, 0]) + one.table.fields[number].skip
            batch.append(one.file.data[begin : begin + (one.table.fields[number].array_nbytes or 0)])
        places.append(batch)
    turn = iter(())

    def put(_: Any, rows: Any) -> None:
        nonlocal turn
        batch = next(turn, None)
        if batch is None:
            turn = iter(places)
            batch = next(turn)
        for row, source in zip(rows[0], batch, strict=True):
            row[...] = source
            digest_of(row)

    return put


QUESTIONS = (
    Question(
        name="shard_read",
        title="150,528-byte records of shards into warm slots, each checked, one core",
        metric="samples_per_s",
        unit="samples/s",
        seconds=4.0,
        variant="raw",
        cases=(
            Case("swift", "ours", Side.OURS, partial(case, of="raw", read="shuffled")),
            Case("loop", "sample by sample", Side.TORCH, partial(case, of="raw", read="one by one")),
            Case("copied", "copied and digested", Side.CEILING, partial(case, of="raw", read="copied")),
        ),
        columns=(Column("gb_per_s", "GB/s"),),
        goals=(
            Goal("ours: 10 GB/s", "swift", at_least=1e10 / 150_528),
            Goal("ours / copied", "swift", "copied", at_least=0.85),
            Goal("ours / sample by sample", "swift", "loop"),
        ),
    ),
    Question(
        name="shard_read_1kB",
        title="1,024-byte samples of shards, each checked, one core",
        metric="samples_per_s",
        unit="samples/s",
        seconds=3.0,
        variant="1kB",
        cases=(
            Case("swift", "ours, shuffled", Side.OURS, partial(case, of="1kB", read="shuffled")),
            Case("in_order", "in order", Side.OURS, partial(case, of="1kB", read="in order")),
            Case("rows", "rows, shuffled", Side.OURS, partial(case, of="1kB", read="shuffled", rows=True)),
            Case("loop", "sample by sample", Side.TORCH, partial(case, of="1kB", read="one by one")),
            Case("copied", "copied and digested", Side.CEILING, partial(case, of="1kB", read="copied")),
        ),
        goals=(
            Goal("ours, shuffled: 0.7 M/s", "swift", at_least=700_000),
            Goal("ours / copied", "swift", "copied", at_least=0.5),
            Goal("ours / sample by sample", "swift", "loop"),
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS, option="--of"))
