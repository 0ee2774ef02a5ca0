"""In a worker: the user's dataset, wrapped so that each sample comes as what was seen when it was asked for.

A loader of probes is a loader like any other: what dies, hangs or stops in here is dealt with as it always is. Nothing
of the trainer's side is known here.
"""

from __future__ import annotations

import importlib
import os
import pickle
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter_ns, process_time_ns
from typing import Any

import numpy as np

from swift_loader.batch.collate import spec_of
from swift_loader.batch.digest import checksum, leaves_of, size_of
from swift_loader.batch.finite import refuse_what_is_not_finite
from swift_loader.batch.layout import Column
from swift_loader.batch.misfit import Unbatchable
from swift_loader.errors import ConfigError, DataError, FailureReport
from swift_loader.host import procfs
from swift_loader.testing.subject import Source
from swift_loader.wire.facts import checked_length
from swift_loader.worker.generators import Generators
from swift_loader.worker.reach import names_in
from swift_loader.worker.whole import drawn, samples_of, whole_batches_of

#: What gives another number each time, by the name that code uses for it.
_UNREPEATABLE = (
    "default_rng", "RandomState", "SystemRandom", "urandom", "token_bytes", "uuid1", "uuid4", "getpid", "get_ident",
    "time", "time_ns", "perf_counter", "monotonic", "now",
)  # fmt: skip


_HASHED = ("hash", "set", "frozenset")
_WAYS = {
    "albumentations": "t.set_random_seed(int(worker_info().rng.integers(2**31)))",
    "monai": "t.set_random_state(int(worker_info().rng.integers(2**31)))",
}


@dataclass(frozen=True, slots=True)
class Built:
    """What was seen when a worker had built the dataset."""

    pid: int
    seconds: float
    nbytes: int
    """By how much the worker's own memory had grown."""
    length: int
    complaint: str
    """Why there is no length."""
    generators: tuple[str, ...]
    """Generators of random numbers that the dataset holds, by their paths: they are seeded."""
    calls: tuple[str, ...]
    """What its methods name that gives another number each time."""
    hashes: tuple[str, ...]
    """What they name that depends on the hashes of texts."""
    ways: tuple[str, ...]
    """How transforms of the libraries that are loaded are seeded by hand."""


@dataclass(slots=True)
class Seen:
    """What was seen of one sample."""

    epoch: int
    index: int
    built: Built
    wall_ns: int = 0
    cpu_ns: int = 0
    own_nbytes: int = 0
    """The worker's own memory afterwards."""
    failure: FailureReport | None = None
    crcs: dict[str, int] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    unbatchable: tuple[str, str] | None = None
    not_finite: str = ""
    nbytes: int = 0
    drew_from: tuple[str, ...] = ()
    """The process's own generators that were drawn from."""


@dataclass(frozen=True, slots=True)
class Look:
    """How closely a probe looks."""

    briefly_from_epoch: int = 1 << 30
    """From this epoch on only time and memory are taken."""
    is_hurried: bool = False
    """Threads change places as often as they can, so that those that disturb each other do."""


class Probe:
    """A dataset of `Seen`."""

    def __init__(self, source: Source, modules: tuple[str, ...], look: Look, *, singly: bool) -> None:
        for name in modules:  # as the fork server does for the dataset alone: not counted as building it
            importlib.import_module(name)
        before, begun = procfs.own_nbytes() or 0, perf_counter_ns()
        self._dataset = source.build()
        seconds = (perf_counter_ns() - begun) / 1e9
        length, complaint = _length_of(self._dataset)
        self._generators = Generators()
        self._generators.find(dataset=self._dataset)
        self._built = Built(
            os.getpid(), seconds, (procfs.own_nbytes() or 0) - before, length, complaint,
            tuple(held.path for held in self._generators.held), tuple(_calls(type(self._dataset), _UNREPEATABLE)),
            tuple(_calls(type(self._dataset), _HASHED)),
            tuple(way for library, way in _WAYS.items() if library in sys.modules),
        )  # fmt: skip
        self._look = look
        self._fetch_all = None if singly else whole_batches_of(self._dataset)
        self._epoch = 0
        if look.is_hurried:
            sys.setswitchinterval(1e-6)

    def __len__(self) -> int:
        return 1  # what is looked at is told by a plan; the dataset's own length is among what is seen

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        if (set_epoch := getattr(self._dataset, "set_epoch", None)) is not None:
            set_epoch(epoch)

    def __getitem__(self, index: int) -> Seen:
        seen = Seen(self._epoch, index, self._built)
        if self._built.complaint:
            return seen
        is_brief = self._epoch >= self._look.briefly_from_epoch
        before = {} if is_brief or self._look.is_hurried else self._states()
        begun, begun_cpu = perf_counter_ns(), process_time_ns()
        try:
            sample = self._sample(index)
        except Exception as error:  # noqa: BLE001 - the user's code: whatever it raised is what was seen
            seen.failure = FailureReport.of(error, "fetch", index)
            return seen
        seen.wall_ns, seen.cpu_ns = perf_counter_ns() - begun, process_time_ns() - begun_cpu
        if before:
            now = self._states()
            seen.drew_from = tuple(name for name, state in now.items() if before.get(name, state) != state)
        if not is_brief:
            _look_into(seen, sample)
        del sample
        seen.own_nbytes = procfs.own_nbytes() or 0
        return seen

    def _sample(self, index: int) -> Any:
        if self._fetch_all is None:
            return self._dataset[index]
        try:
            (sample,) = samples_of(drawn(self._fetch_all([index])), 1)
        except DataError:  # a batch that it has made itself, which is for a collate_fn
            return self._dataset[index]
        return sample

    def _states(self) -> dict[str, Any]:
        """Those of all generators that are seeded, by name."""
        legacy: Any = np.random.get_state()  # noqa: NPY002 - the generator that datasets use
        states: dict[str, Any] = {"random": random.getstate(), "numpy.random": (legacy[1].tobytes(), legacy[2])}
        torch = sys.modules.get("torch")
        if torch is not None:
            states["torch"] = torch.default_generator.get_state().numpy().tobytes()
        self._generators.look()
        return states | {held.path: pickle.dumps(held.state()) for held in self._generators.held}


def as_they_are(samples: list[Seen]) -> list[Seen]:
    """The collate of probes."""
    return samples


def _look_into(seen: Seen, sample: Any) -> None:
    leaves = leaves_of(sample)
    seen.crcs = {path: checksum(leaf) for path, leaf in leaves.items()}
    seen.nbytes = sum(size_of(leaf) for leaf in leaves.values())
    try:
        spec = spec_of(sample, 1)
        columns = zip(spec.structure.ends(), spec.columns, strict=True)
        seen.columns = {end.path: column for end, column in columns if end.path in leaves}
    except Unbatchable as error:
        seen.unbatchable = (error.path, error.found)
    try:
        refuse_what_is_not_finite(sample, seen.index)
    except DataError as error:
        seen.not_finite = str(error).partition(" (")[0]


def _length_of(dataset: Any) -> tuple[int, str]:
    try:
        count = checked_length(dataset)
    except ConfigError as error:
        return 0, str(error)
    return count, "" if count else f"{type(dataset).__name__} is empty: its len() is 0"


def _calls(kind: type, of: tuple[str, ...]) -> Iterator[str]:
    for base in kind.__mro__:
        for name, method in vars(base).items():
            code = getattr(method, "__code__", None)
            names = set() if code is None else set(names_in(code))
            yield from (f"{call}() in {name}" for call in of if call in names)
