"""What user code inside a worker may ask: which worker am I, which batch is this, and a generator keyed by it."""

from __future__ import annotations

import random
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np

from swift_loader.plan.seeding import batch_key, keyed_generator, sample_key

if TYPE_CHECKING:
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

    def __init__(self, consumer: int, worker: int, seed: int, *, per_sample: bool) -> None:
        self.consumer = consumer
        self.worker = worker
        self.seed = seed
        self.epoch = 0
        self.step = 0
        self._per_sample = per_sample
        self._here = threading.local()

    @property
    def rng(self) -> Generator:
        """A numpy generator keyed by the batch, or by the sample with ``random_per="sample"`` or ``worker_threads``.

        Its numbers are the same after a crash, a resume, and with any number of workers or threads.
        """
        here = self._here
        key = self._key(getattr(here, "index", None))
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

    def _key(self, index: int | None) -> int:
        if self._per_sample and index is not None:
            return sample_key(self.seed, self.epoch, index)
        return batch_key(self.seed, self.epoch, self.consumer, self.step)

    def seed_generators(self, index: int | None = None) -> None:
        """Seeds the process's own generators for the batch, or for the sample."""
        key = self._key(index)
        random.seed(key)
        # numpy's takes an array of words too, for thrice the time: 32 bits only mean that two of a hundred thousand
        # batches may draw alike from it.
        np.random.seed(key & 0xFFFFFFFF)  # noqa: NPY002 - the generator that datasets use
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.default_generator.manual_seed(key >> 64)  # torch.manual_seed seeds every device: 70 times slower


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
