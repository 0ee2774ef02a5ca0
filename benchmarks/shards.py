"""Shards: datasets packed in large files, read by us and by those who made such files popular.

Measures, by `--samples`: `raw`, 150 kB records (3x224x224 uint8 and a label), 8,192 of them, batches of 256; `jpeg`,
400x400 JPEG files of 30 kB, decoded, cropped at random, resized to 224, float32, batches of 64. Each side reads files
that its own writer wrote, out of the page cache, shuffled, with 2 workers, as its own documentation has it: webdataset
with `shuffle(1000)`, MosaicML's StreamingDataset, LitData shuffled and not (the better one counts). Ours checks each
sample where it lands. The clock runs over whole epochs, the figure is that of the second epoch and all after it; the
first epoch, from the construction of dataset and loader on, is a column.

Leaves out: stores and networks; a training that competes for the cores; writing (see `shard_write`).

Command: `python -m benchmarks.shards`. The last table is `results/shards.txt`, and `results/shards_jpeg.txt`.

Caveat: webdataset's and LitData's workers deal out whole files or chunks, so their epochs may differ by a few samples
between workers; MosaicML's and LitData's packages are measured where they are installed.
"""

from __future__ import annotations

import io
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks import duel
from benchmarks.jpeg_workload import cropped, jpeg_files
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.warm_slots import Stacking
from swift_loader import SwiftLoader
from swift_loader.shards import ShardDataset, create

RECORDS, RAW_BATCH, RAW_SHAPE = 8192, 256, (3, 224, 224)
IMAGES, JPEG_BATCH, DISTINCT = 1024, 64, 64
CLASSES = 1000
WORKERS = 2


class Records:
    """150 kB each, and a label."""

    def __init__(self, settings: Settings) -> None:
        self._count = settings.size(RECORDS)
        self._pool = np.random.default_rng(0).integers(0, 256, (64, *RAW_SHAPE), dtype=np.uint8)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self._pool[index % 64], "cls": index % CLASSES}


class Pictures:
    """JPEG files, and a label."""

    def __init__(self, settings: Settings) -> None:
        self._count = settings.size(IMAGES)
        self._files = jpeg_files(DISTINCT)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"jpg": self._files[index % DISTINCT], "cls": index % CLASSES}


def weigh(batch: Any) -> tuple[int, int]:
    """Rows, and the sum of the labels."""
    pixels, labels = (batch["x"], batch["cls"]) if isinstance(batch, dict) else batch
    if not 0 <= float(pixels[0, 0, 0, 0]) <= 255:
        raise ValueError(f"a pixel is {float(pixels[0, 0, 0, 0])}")
    return len(pixels), int(np.asarray(labels).sum())


def later(found: Callable[[], Any], settings: Settings, nbytes: int) -> Result:
    """Whole epochs: the figure is that of all but the first."""
    laps = run_epochs(found, weigh, settings)
    first, rest = laps.laps[0], laps.laps[1:] or laps.laps
    began = first.last_at if laps.laps[1:] else laps.started_at
    rate = sum(lap.samples for lap in rest) / (rest[-1].last_at - began)
    return {
        "samples_per_s": rate,
        "gb_per_s": rate * nbytes / 1e9,
        "first_samples_per_s": first.samples / (first.last_at - laps.started_at),
        "first_batch_s": first.first_at - laps.started_at,
        "epochs": len(laps.laps),
    }


class Raw:
    """150 kB records."""

    batch, nbytes, shard_nbytes = RAW_BATCH, int(np.prod(RAW_SHAPE)), 64_000_000
    source = Records

    @staticmethod
    def ours(folder: str) -> Any:
        return ShardDataset(folder, ("x.npy", "cls"))

    @staticmethod
    def stored(sample: dict[str, Any]) -> dict[str, Any]:
        return {"x.npy": sample["x"], "cls": sample["cls"]}

    @staticmethod
    def decoded(pipeline: Any) -> Any:
        return pipeline.decode().to_tuple("x.npy", "cls")

    columns: ClassVar = {"x": f"ndarray:uint8:{','.join(map(str, RAW_SHAPE))}", "cls": "int"}

    @staticmethod
    def lit(sample: dict[str, Any]) -> Any:
        return {"x": torch.from_numpy(sample["x"].copy()), "cls": sample["cls"]}

    read = None


class Jpeg:
    """JPEG files."""

    batch, nbytes, shard_nbytes = JPEG_BATCH, 3 * 224 * 224 * 4, 1_000_000
    source = Pictures

    @staticmethod
    def ours(folder: str) -> Any:
        return ShardDataset(folder, ("jpg", "cls"), transform=_cropped_pair)

    @staticmethod
    def stored(sample: dict[str, Any]) -> dict[str, Any]:
        return sample

    @staticmethod
    def decoded(pipeline: Any) -> Any:
        return pipeline.decode("pil").to_tuple("jpg", "cls").map_tuple(cropped, _same)

    columns: ClassVar = {"jpg": "bytes", "cls": "int"}

    @staticmethod
    def lit(sample: dict[str, Any]) -> Any:
        return sample

    @staticmethod
    def read(sample: dict[str, Any]) -> dict[str, Any]:
        """What their own datasets give, as a sample."""
        from PIL import Image

        return {"x": cropped(Image.open(io.BytesIO(sample["jpg"])).convert("RGB")), "cls": sample["cls"]}


def _same(value: Any) -> Any:
    return value


def _cropped_pair(sample: tuple[Any, int]) -> tuple[Any, int]:
    return cropped(sample[0]), sample[1]


def stored_by(kind: Any, settings: Settings) -> Iterator[dict[str, Any]]:
    """All samples, as they are written."""
    source = kind.source(settings)
    return (kind.stored(source[index]) for index in range(len(source)))


def case_swift(settings: Settings, kind: Any, folder: str) -> Result:
    """Ours."""
    create(stored_by(kind, settings), folder, shuffle=False, maxsize=kind.shard_nbytes)

    def build() -> Any:
        loader = SwiftLoader.from_dataset(kind.ours(folder), kind.batch, 1, WORKERS, seed=settings.seed)
        loader.start(0)
        return loader

    return later(build, settings, kind.nbytes)


def case_torch(settings: Settings, kind: Any, folder: str) -> Result:
    """Our set, in torch's loader."""
    create(stored_by(kind, settings), folder, shuffle=False, maxsize=kind.shard_nbytes)
    build = partial(DataLoader, batch_size=kind.batch, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    return later(lambda: build(kind.ours(folder)), settings, kind.nbytes)


def case_webdataset(settings: Settings, kind: Any, folder: str) -> Result:
    """webdataset's tars, in torch's loader."""
    import webdataset as wds

    with wds.ShardWriter(f"{folder}/%06d.tar", maxsize=kind.shard_nbytes, maxcount=10**9, verbose=0) as writer:
        for number, sample in enumerate(stored_by(kind, settings)):
            writer.write({"__key__": f"{number:09d}", **sample})
    shards = sorted(map(str, Path(folder).glob("*.tar")))

    def build() -> Any:
        pipeline = wds.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000)
        return DataLoader(
            kind.decoded(pipeline).batched(kind.batch), batch_size=None, num_workers=WORKERS, persistent_workers=True
        )

    return later(build, settings, kind.nbytes)


def case_mds(settings: Settings, kind: Any, folder: str) -> Result:
    """MosaicML's shards and dataset, in torch's loader."""
    _without_torchvision()
    import streaming

    with streaming.MDSWriter(out=folder, columns=kind.columns, size_limit=kind.shard_nbytes) as writer:
        source = kind.source(settings)
        for index in range(len(source)):
            writer.write(source[index])

    class Given(streaming.StreamingDataset):
        def __getitem__(self, at: int) -> Any:
            sample = super().__getitem__(at)
            return sample if kind.read is None else kind.read(sample)

    def build() -> Any:
        dataset = Given(local=folder, shuffle=True, batch_size=kind.batch)
        return DataLoader(dataset, batch_size=kind.batch, num_workers=WORKERS, persistent_workers=True)

    return later(build, settings, kind.nbytes)


def case_litdata(settings: Settings, kind: Any, folder: str, *, shuffle: bool) -> Result:
    """LitData's chunks, dataset and loader."""
    import litdata
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(folder, chunk_bytes=kind.shard_nbytes)
    source = kind.source(settings)
    for index in range(len(source)):
        writer.add_item(index, kind.lit(source[index]))
    writer.done()
    writer.merge()

    class Given(litdata.StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            sample = super().__getitem__(at)
            return sample if kind.read is None else kind.read(sample)

    def build() -> Any:
        dataset = Given(folder, shuffle=shuffle)
        return litdata.StreamingDataLoader(dataset, batch_size=kind.batch, num_workers=WORKERS, persistent_workers=True)

    return later(build, settings, kind.nbytes)


def case_warm(settings: Settings, kind: Any, folder: str) -> Result:
    """Two processes that read ours into warm memory, and send nothing."""
    create(stored_by(kind, settings), folder, shuffle=False, maxsize=kind.shard_nbytes)
    dataset = kind.ours(folder)

    def fill(row: Any, index: int) -> None:
        row[...] = dataset[index][0]

    stacking = Stacking(fill, dataset[0][0], len(dataset), kind.batch, min(2.0, settings.seconds))
    return {"samples_per_s": stacking.rate(processes=2)}


def _without_torchvision() -> None:
    """MosaicML's package imports names of torchvision's that nothing here uses."""
    if find_spec("torchvision") is not None:
        return
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
        module = sys.modules[name] = types.ModuleType(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []  # others ask whether it is there
        module.VisionDataset = module.to_tensor = object  # type: ignore[attr-defined]


def in_folder(settings: Settings, run: Callable[..., Result], kind: Any) -> Result:
    """In a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="swift-shards-") as folder:
        return run(settings, kind, folder)


SIDES = (
    ("swift", "ours", Side.OURS, case_swift, "swift_loader"),
    ("torch", "our set, torch's loader", Side.TORCH, case_torch, "torch"),
    ("webdataset", "torch + webdataset", Side.TORCH, case_webdataset, "webdataset"),
    ("mds", "torch + MosaicML", Side.TORCH, case_mds, "streaming"),
    ("litdata", "LitData", Side.TORCH, partial(case_litdata, shuffle=False), "litdata"),
    ("litdata_shuffled", "LitData, shuffled", Side.TORCH, partial(case_litdata, shuffle=True), "litdata"),
    ("warm", "two cores, warm memory", Side.CEILING, case_warm, "swift_loader"),
)
MISSING = tuple(sorted({package for *_, package in SIDES if find_spec(package) is None}))


def question(variant: str, title: str, kind: Any, least: dict[str, float]) -> Question:
    """The sides that are installed, on one kind of samples."""
    there = [side for side in SIDES if side[-1] not in MISSING]
    return Question(
        name="shards" if variant == "raw" else f"shards_{variant}",
        title=title,
        metric="samples_per_s",
        unit="samples/s",
        seconds=3.0,
        variant=variant,
        cases=tuple(
            Case(name, label, side, partial(in_folder, run=run, kind=kind)) for name, label, side, run, _ in there
        ),
        columns=(
            Column("gb_per_s", "GB/s"),
            Column("first_samples_per_s", "1st epoch"),
            Column("first_batch_s", "first s"),
        ),
        goals=tuple(
            Goal(f"ours / {label}", "swift", name, at_least=least.get(name))
            for name, label, *_ in there
            if name != "swift"
        ),
        notes=(f"Not installed here, so not measured: {', '.join(MISSING)}.",) if MISSING else (),
    )


QUESTIONS = (
    question(
        "raw",
        "Shards: 150 kB records, page cache, batch 256, 2 workers, from the second epoch",
        Raw,
        {"webdataset": 12, "mds": 10, "litdata": 5, "litdata_shuffled": 5},
    ),
    question(
        "jpeg",
        "Shards: 400x400 JPEG, crop, 224, batch 64, 2 workers, from the second epoch",
        Jpeg,
        {"webdataset": 1.5, "litdata": 1.5, "litdata_shuffled": 1.5},
    ),
)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS, "--samples"))
