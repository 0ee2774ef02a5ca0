"""What user code inside a worker may ask: which worker am I, which batch is this, and a generator keyed by it."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from swift_loader.plan.seeding import batch_key, epoch_key, keyed_generator, sample_key
from swift_loader.worker.generators import Generators, put_back, seed_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.random import Generator

    from swift_loader.plan.ahead import Ahead


T = TypeVar("T")
SetEpoch: TypeAlias = "Callable[[int], None]"


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
        self.generators = Generators()
        self.ahead: Ahead | None = None

    def upcoming(self, steps: int) -> list[list[int]]:
        """The indices of this consumer's next batches, from the one being made on; fewer where the epoch ends.

        Other workers make some of them. For datasets that fetch ahead: ask in ``turn_to``, not in a thread.
        """
        return [] if self.ahead is None else self.ahead.following(self.epoch, self.step, steps)

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
        if self._shares:
            seed_thread(lambda: self._key(index))

    def turner(self, dataset: Any) -> SetEpoch | None:
        """The dataset's ``set_epoch``, where it has one, called as `turning_to` says."""
        set_epoch = getattr(dataset, "set_epoch", None)
        if set_epoch is None:
            return None

        def turn(epoch: int) -> None:
            with self.turning_to(epoch):
                set_epoch(epoch)

        return turn

    @contextmanager
    def turning_to(self, epoch: int) -> Iterator[None]:
        """Around the dataset's ``set_epoch``: what it draws there is the same in all workers, of all consumers."""
        key = epoch_key(self.seed, epoch)
        with self._drawing_by(key):
            self.generators.seed(key)
            yield
        self.generators.look()  # it may have made others

    def made(self, epoch: int, index: int, make: Callable[[], T]) -> T:
        """What ``make`` gives, a sample that is kept: its numbers are its own, whatever batch asks for it first.

        Afterwards all generators are what they were, but for OpenCV's. Threads share those of the process, so with
        them only `rng` is the sample's own.
        """
        key = sample_key(self.seed, epoch, index)
        with self._drawing_by(key):
            if self._shares:
                return make()
            at, self.epoch = self.epoch, epoch
            try:
                return self.generators.whole(lambda: self._seeded(key, make))
            finally:
                self.epoch = at

    @contextmanager
    def _drawing_by(self, key: int) -> Iterator[None]:
        here = self._here
        before = getattr(here, "made", None), getattr(here, "key", None), getattr(here, "generator", None)
        states = None if self._shares else self.generators.states()
        here.made = key
        try:
            yield
        finally:
            here.made, here.key, here.generator = before
            if states is not None:
                put_back(states)

    def _seeded(self, key: int, make: Callable[[], T]) -> T:
        self.generators.seed(key)
        self._here.key = None
        return make()

    def _key(self, index: int | None) -> int:
        if self._per_sample and index is not None:
            return sample_key(self.seed, self.epoch, index)
        return batch_key(self.seed, self.epoch, self.consumer, self.step)

    def seed_generators(self, index: int | None = None) -> None:
        """Seeds the process's own generators for the batch, or for the sample."""
        self.generators.seed(self._key(index))


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


class OneGpuEach:
    """Has each worker see one GPU only, before its dataset is built: a `worker_init`.

    Args:
        gpu_indices: One for each worker.
    """

    def __init__(self, gpu_indices: list[int]) -> None:
        self._gpu_indices = gpu_indices

    def __call__(self, info: WorkerInfo) -> None:
        """Runs in each worker, and in each that takes the place of one."""
        info.gpu_index = self._gpu_indices[info.worker]
        os.environ["CUDA_VISIBLE_DEVICES"] = str(info.gpu_index)
