"""One side of `swift-loader bench`, in a process of its own: `main` is told what by JSON on standard input.

Each side is driven by the same loop, as a training script would: one epoch after the other. Where the dataset is long,
an epoch is an excerpt of it, the same samples in the same order on all sides.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from swift_loader.cli import naming
from swift_loader.host import load

EPOCHS = 3
#: Before memory is looked at, every worker has made so many batches.
_SETTLED = 4


@dataclass(frozen=True)
class Spec:
    """What to load, the same for every side."""

    dataset: str
    kwargs: dict[str, Any]
    batch_size: int
    workers: int
    collate: str | None = None
    start_method: str | None = None
    consumer_ms: float = 0.0
    seed: int = 1
    steps: int | None = None
    """Batches of an epoch that is an excerpt; None where epochs are whole."""
    limit_s: float = 60.0
    """After so long the rest is left out."""

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any] | None:
        """The function itself."""
        return None if self.collate is None else naming.named(self.collate)

    def build(self) -> Any:
        """The dataset."""
        return naming.named(self.dataset)(**self.kwargs)


@dataclass(frozen=True)
class Measured:
    """What one run of a side showed; what could not be measured is None."""

    samples_per_s: float | None = None
    """Within epochs, from the first batch of each to its last."""
    first_batch_s: float | None = None
    """From before the dataset and the loader are made to the first batch."""
    gap_ms: float | None = None
    """From the last batch of an epoch to the first of the next."""
    cpu_ms: float | None = None
    """CPU time of all processes for a batch, from the second epoch on."""
    pss_mb: float | None = None
    batches: int = 0


@dataclass(frozen=True)
class Excerpt:
    """A plan: so many batches of each epoch, drawn from the whole dataset."""

    length: int
    batch_size: int
    steps: int
    seed: int

    def step_count(self, epoch: int, consumer: int) -> int:  # noqa: ARG002 - all are alike
        return self.steps

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:  # noqa: ARG002 - as above
        return [self.batch(epoch, step) for step in range(first, first + count)]

    def batch(self, epoch: int, step: int) -> list[int]:
        """Samples drawn by chance, so that nobody has them in order."""
        chance = random.Random(f"{self.seed}.{epoch}.{step}")  # noqa: S311 - the same on all sides
        return chance.choices(range(self.length), k=self.batch_size)

    def fingerprint(self) -> dict[str, Any]:
        return {"plan": "Excerpt", **dataclasses.asdict(self)}


class Batches:
    """The same as torch's loader takes it: an epoch's batches each time it is iterated."""

    def __init__(self, excerpt: Excerpt) -> None:
        self._excerpt = excerpt
        self._epoch = -1

    def __len__(self) -> int:
        return self._excerpt.steps

    def __iter__(self) -> Iterator[list[int]]:
        self._epoch += 1
        return (self._excerpt.batch(self._epoch, step) for step in range(len(self)))


def swift(spec: Spec, length: int) -> Any:
    """Our loader."""
    from swift_loader.loader import SwiftLoader

    settings: dict[str, Any] = {"seed": spec.seed, "collate_fn": spec.collate_fn}
    settings["start_method"] = spec.start_method
    if spec.steps is not None:
        settings["plan"] = Excerpt(length, spec.batch_size, spec.steps, spec.seed)
    loader = SwiftLoader(naming.named(spec.dataset), spec.kwargs, spec.batch_size, 1, spec.workers, **settings)
    loader.start(0)
    return loader


def torch(spec: Spec, length: int, *, persistent: bool = False) -> Any:
    """Torch's loader."""
    from torch import Generator
    from torch.utils.data import DataLoader

    how: dict[str, Any] = {
        "num_workers": spec.workers,
        "collate_fn": spec.collate_fn,
        "multiprocessing_context": spec.start_method,
        "persistent_workers": persistent,
        "generator": Generator().manual_seed(spec.seed),
    }
    if spec.steps is None:
        return DataLoader(spec.build(), batch_size=spec.batch_size, shuffle=True, **how)
    batches: Any = Batches(Excerpt(length, spec.batch_size, spec.steps, spec.seed))
    return DataLoader(spec.build(), batch_sampler=batches, **how)


def torch_persistent(spec: Spec, length: int) -> Any:
    """Torch's loader, whose workers stay."""
    return torch(spec, length, persistent=True)


SIDES: dict[str, Callable[[Spec, int], Any]] = {"swift": swift, "torch": torch, "torch_persistent": torch_persistent}


@dataclass(frozen=True)
class _Lap:
    """An epoch: when its first and its last batch were there, by the clock and by CPU time."""

    first_at: float
    last_at: float
    cpu_s: float
    batches: int
    is_whole: bool


def measured(side: str, spec: Spec, length: int) -> Measured:
    """Runs one side."""
    import torch as _  # noqa: F401 - as in any training script; not part of the first batch

    samples = length if spec.steps is None else spec.steps * spec.batch_size
    begun = time.perf_counter()
    loader = SIDES[side](spec, length)
    laps: list[_Lap] = []
    while len(laps) < EPOCHS and (not laps or laps[-1].is_whole):
        laps.append(_lap(loader, spec.consumer_ms / 1e3, begun + spec.limit_s))
    pss = _pss_mb(loader, _SETTLED * max(1, spec.workers))
    if hasattr(loader, "close"):
        loader.close()
    return told(begun, laps, samples, spec.batch_size, pss)


def told(begun: float, laps: list[_Lap], samples: int, batch_size: int, pss_mb: float | None) -> Measured:
    """What the laps come to."""
    seconds = sum(lap.last_at - lap.first_at for lap in laps)
    # An epoch's first batch was made before the clock of that epoch.
    taken = sum((samples if lap.is_whole else lap.batches * batch_size) - batch_size for lap in laps)
    gaps = [after.first_at - before.last_at for before, after in itertools.pairwise(laps)]
    later = sum(lap.batches for lap in laps[1:])
    return Measured(
        samples_per_s=taken / seconds if seconds > 0 and taken > 0 else None,
        first_batch_s=laps[0].first_at - begun,
        gap_ms=1e3 * median(gaps) if gaps else None,
        cpu_ms=1e3 * (laps[-1].cpu_s - laps[0].cpu_s) / later if later else None,
        pss_mb=pss_mb,
        batches=sum(lap.batches for lap in laps),
    )


def gauged(spec: Spec, seconds: float) -> tuple[int, float]:
    """How many samples there are, and how long one takes, in this process."""
    dataset = spec.build()
    length = len(dataset)
    begun, count = time.perf_counter(), 0
    chance = random.Random(spec.seed)  # noqa: S311 - which samples does not matter
    while count < 2 or (time.perf_counter() - begun < seconds and count < 4 * spec.batch_size):
        dataset[chance.randrange(length)]
        count += 1
    return length, (time.perf_counter() - begun) / count


def _lap(loader: Any, consumer_s: float, until: float) -> _Lap:
    first_at = last_at = 0.0
    count, is_whole = 0, True
    for _ in loader:
        last_at = time.perf_counter()
        first_at = first_at or last_at
        count += 1
        if last_at > until:
            is_whole = False
            break
        if consumer_s:
            time.sleep(consumer_s)
    return _Lap(first_at, last_at, load.family_cpu_s(), count, is_whole)


def _pss_mb(loader: Any, settled: int) -> float | None:
    """Of the whole family, in the middle of an epoch that does not count."""
    found = None
    last = min(settled, len(loader))
    for number, _ in enumerate(loader, 1):
        if number == last:
            found = load.family_pss_nbytes()
            break
    return None if found is None else found / 1e6


def main() -> int:
    """Reads one JSON object, writes one line of it."""
    naming.look_here()
    told = json.loads(sys.stdin.read())
    spec = Spec(**told["spec"])
    if told["side"] == "gauge":
        length, sample_s = gauged(spec, told["seconds"])
        answer: dict[str, Any] = {"length": length, "sample_s": sample_s}
    else:
        answer = dataclasses.asdict(measured(told["side"], spec, told["length"]))
    print(f"\n{json.dumps(answer)}", flush=True)
    return 0
