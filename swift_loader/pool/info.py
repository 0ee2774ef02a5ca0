"""What user code inside a worker may ask: which worker am I, which batch is this, and a generator keyed by it."""

from __future__ import annotations

import random
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.plan.seeding import batch_key, keyed_generator, sample_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator


class WorkerInfo:
    """Where the calling code runs.

    Attributes:
        consumer: The consumer (GPU, rank) that the batch is for.
        worker: The worker's number within that consumer.
        seed: The loader's seed.
        epoch: The epoch of the batch being made.
        step: Its step.
        gpu_index: The GPU that this worker was given (`gpu_indices`), the only one that it sees; or None.
    """

    gpu_index: int | None = None

    def __init__(self, consumer: int, worker: int, seed: int, *, per_sample: bool, shares: bool = False) -> None:
        self.consumer = consumer
        self.worker = worker
        self.seed = seed
        self.epoch = 0
        self.step = 0
        self._per_sample = per_sample
        self._shares = shares
        """Several threads fetch, and share the process's own generators."""
        self._here = threading.local()

    @property
    def rng(self) -> Generator:
        """A numpy generator keyed by the batch, or by the sample with ``random_per="sample"`` or ``worker_threads``.

        Its numbers are the same after a crash, a resume, and with any number of workers or threads.
        """
        here = self._here
        key = getattr(here, "made", None) or self._key(getattr(here, "index", None))
        if getattr(here, "key", None) != key:
            here.key, here.generator = key, keyed_generator(key)
        return here.generator  # type: ignore[no-any-return] # threading.local is untyped

    def turn_to_batch(self, epoch: int, step: int) -> None:
        """A worker begins a batch."""
        self.epoch, self.step = epoch, step
        self._here.index = self._here.key = None  # made twice by one worker, a batch draws the same both times

    def turn_to_sample(self, index: int) -> None:
        """This thread begins a sample."""
        self._here.index = index
        if self._per_sample:
            self._here.key = None

    @contextmanager
    def making(self, epoch: int, index: int) -> Iterator[None]:
        """Around the making of a sample that is kept: its numbers are its own, whatever batch asks for it first.

        Afterwards all generators are what they were. Threads share those of the process, so with them only `rng` is
        the sample's own.
        """
        here = self._here
        before = getattr(here, "key", None), getattr(here, "generator", None)
        at = self.epoch
        here.made = sample_key(self.seed, epoch, index)
        states = None if self._shares else _states()
        try:
            if states is not None:
                self.epoch = epoch
                _seed_all(here.made)
            yield
        finally:
            here.made = None
            here.key, here.generator = before
            if states is not None:
                self.epoch = at
                _put_back(states)

    def _key(self, index: int | None) -> int:
        if self._per_sample and index is not None:
            return sample_key(self.seed, self.epoch, index)
        return batch_key(self.seed, self.epoch, self.consumer, self.step)

    def seed_generators(self, index: int | None = None) -> None:
        """Seeds the process's own generators for the batch, or for the sample."""
        _seed_all(self._key(index))


def _seed_all(key: int) -> None:
    random.seed(key)
    # numpy's takes an array of words too, for thrice the time: 32 bits only mean that two of a hundred thousand
    # batches may draw alike from it.
    np.random.seed(key & 0xFFFFFFFF)  # noqa: NPY002 - the generator that datasets use
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(key >> 64)  # torch.manual_seed seeds every device: 70 times slower


def _states() -> tuple[Any, Any, Any]:
    torch = sys.modules.get("torch")
    state = None if torch is None else torch.default_generator.get_state()
    return random.getstate(), np.random.get_state(), state  # noqa: NPY002 - the generator that datasets use


def _put_back(states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002 - as above
    if states[2] is not None:
        sys.modules["torch"].default_generator.set_state(states[2])


_current: WorkerInfo | None = None


def worker_info() -> WorkerInfo | None:
    """What is known about the worker that runs the calling code; None outside of workers.

    Example:
        >>> from swift_loader import worker_info
        >>> worker_info() is None
        True
    """
    return _current


def set_worker_info(info: WorkerInfo | None) -> WorkerInfo | None:
    """Makes ``info`` what `worker_info` tells in this process; gives back what was there."""
    global _current
    before, _current = _current, info
    return before
