"""Shards that are there already: how quickly tar files of others get their tables, and rows of arrays are read.

Measures, by `--of`:
`tars_small`: a tar file of 100,000 members (a class and 1,000 bytes a sample), as webdataset's users have it, is gone
through by one process: headers, grouping, a checksum of each member and of the whole; the table is made. Beside it,
`tarfile` that reads each member. `tars_large`: the same with 150 kB a sample, in GB/s.
`rows`: 256 random rows at once, of 512 uint16 each, out of a `.npy` file of 200 MB into an array that is warm: with a
checksum of each row in its place, and without. The ceiling is numpy's `take` out of the same file, mapped.

Everything is in the page cache. Leaves out: disks, the loader.

Command: `python -m benchmarks.shards_there [--of rows]`. The last tables are `results/shards_there*.txt`.

Caveat: random rows of 1 kB wait for memory, which other work on the machine slows more than anything else here.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import duel
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side

TARS = {"tars_small": (1_000, 50_000), "tars_large": (150_000, 4_000)}
ROWS, WIDTH, AT_ONCE = 200_000, 512, 256


def best_of(run: Callable[[], object], settings: Settings) -> float:
    """The seconds of the quickest of all runs there is time for, and at least two."""
    seconds, ends = [], time.perf_counter() + settings.seconds
    while len(seconds) < 2 or time.perf_counter() < ends:
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def case_tar(settings: Settings, *, nbytes: int, samples: int, look: Callable[[Path], int]) -> Result:
    """A tar file is gone through."""
    samples = settings.size(samples)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        write(path, samples, nbytes)
        found = look(path)
        if found != samples:
            raise ValueError(f"{found} samples")
        seconds = best_of(lambda: look(path), settings)
        return {"members_per_s": 2 * samples / seconds, "gb_per_s": path.stat().st_size / seconds / 1e9}


def write(path: Path, samples: int, nbytes: int) -> None:
    """As `tarfile` writes it."""
    pool = [np.random.default_rng(seed).bytes(nbytes) for seed in range(64)]
    with tarfile.open(path, "w") as archive:
        for number in range(samples):
            for field, data in (("cls", b"%d" % (number % 1000)), ("jpg", pool[number % 64])):
                info = tarfile.TarInfo(f"{number:09d}.{field}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def by_us(path: Path) -> int:
    """Makes the table."""
    from swift_loader.shards.folder import Folder
    from swift_loader.shards.foreign import foreign_table

    return foreign_table(memoryview(Folder(path.parent).whole(path.name))).samples


def by_tarfile(path: Path) -> int:
    """Reads all members."""
    count = 0
    with tarfile.open(path) as archive:
        for info in archive:
            member = archive.extractfile(info)
            assert member is not None
            member.read()
            count += 1
    return count // 2


def digested(path: Path) -> int:
    """The bytes alone, digested; as many samples as there are headers of them, two for each."""
    from swift_loader.host.xxhash import wide_digest_of

    data = np.memmap(path, np.uint8, "r").view(np.ndarray)
    wide_digest_of(data)
    with tarfile.open(path) as archive:
        first, second = archive.next(), archive.next()
    assert first is not None
    assert second is not None
    last = len(data) - 20_480 + int(np.flatnonzero(data[-20_480:])[-1])  # behind it are zeros alone
    return last // (1024 + 512 + -(-second.size // 512) * 512) + 1


def case_rows(settings: Settings, *, kind: str) -> Result:
    """Random rows."""
    from swift_loader.shards import ArrayDataset, index

    count = settings.size(ROWS)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.npy")
        np.save(path, rng.integers(0, 50_000, (count, WIDTH), dtype=np.uint16))
        if kind == "checked":
            index(path)
        mapped = np.load(path, mmap_mode="r").view(np.ndarray)
        mapped.sum()
        target = np.zeros((AT_ONCE, WIDTH), np.uint16)
        asked = [rng.integers(0, count, AT_ONCE) for _ in range(200)]
        read: Any = ArrayDataset(path).read_into
        if kind in ("take", "loop"):
            read = partial(_take if kind == "take" else _loop, mapped)

        def epoch() -> None:
            for indices in asked:
                read(indices, target)

        epoch()
        if not (target == mapped[asked[-1]]).all():
            raise ValueError("other rows")
        return {"rows_per_s": len(asked) * AT_ONCE / best_of(epoch, settings)}


def _take(mapped: Any, indices: Any, target: Any) -> None:
    np.take(mapped, indices, axis=0, out=target, mode="clip")


def _loop(mapped: Any, indices: Any, target: Any) -> None:
    for row, index in enumerate(indices.tolist()):
        target[row] = mapped[index]


def tars(size: str, goal: Goal) -> Question:
    """The question for members of one size."""
    case = partial(partial, case_tar, nbytes=TARS[size][0], samples=TARS[size][1])
    return Question(
        name=f"shards_there_{size}",
        title=f"A foreign tar file gets its table: {TARS[size][0]:,} bytes and a class a sample",
        metric="members_per_s",
        unit="members/s",
        seconds=3.0,
        variant=size,
        cases=(
            Case("swift", "ours", Side.OURS, case(look=by_us)),
            Case("tarfile", "tarfile, reading", Side.TORCH, case(look=by_tarfile)),
            Case("bytes", "the bytes alone, digested", Side.CEILING, case(look=digested)),
        ),
        columns=(Column("gb_per_s", "GB/s"),),
        goals=(goal, Goal("ours / tarfile", "swift", "tarfile", at_least=1.5)),
    )


QUESTIONS = (
    tars("tars_small", Goal("ours: 200 k/s", "swift", at_least=200_000)),
    tars("tars_large", Goal("ours: 2 GB/s", "swift", at_least=2 * 2e9 / 152_000)),
    Question(
        name="shards_there",
        title="Random rows of 512 uint16 out of a .npy file, 256 at once, one process",
        metric="rows_per_s",
        unit="rows/s",
        seconds=3.0,
        variant="rows",
        cases=(
            Case("unchecked", "ours", Side.OURS, partial(case_rows, kind="unchecked")),
            Case("checked", "ours, checked", Side.OURS, partial(case_rows, kind="checked")),
            Case("loop", "one by one", Side.TORCH, partial(case_rows, kind="loop")),
            Case("take", "numpy's take", Side.CEILING, partial(case_rows, kind="take")),
        ),
        goals=(
            Goal("unchecked: 8 M/s", "unchecked", at_least=8e6),
            Goal("checked: 4 M/s", "checked", at_least=4e6),
            Goal("unchecked / take", "unchecked", "take", at_least=0.6),
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS, option="--of"))
