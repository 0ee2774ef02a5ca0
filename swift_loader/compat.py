"""`DataLoader` and `AsyncDataLoader`: a SwiftLoader of one consumer, started when it is constructed.

For scripts that are written for these two. They say in other words what `SwiftLoader` is told; nothing is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Self

from swift_loader.errors import ConfigError
from swift_loader.host.warn import warn_user
from swift_loader.loader import SwiftLoader
from swift_loader.settings import checks
from swift_loader.settings.arguments import Settings
from swift_loader.settings.keywords import explained
from swift_loader.settings.loader import checked_kwargs
from swift_loader.worker.info import OneGpuEach

if TYPE_CHECKING:
    import torch

    from swift_loader.settings.cache import CacheSetting
    from swift_loader.settings.rotation import RotationSetting

_LOOK_S = 0.01


class DataLoader:
    """Streams batches of a map-style dataset that worker processes build from keyword arguments.

    Workers are started here, and make batches from now on. An epoch is every sample once, or as often as
    ``rotation_setting`` says; the last batch may be smaller.

    Args:
        dataset_class: What each worker builds.
        dataset_params: Its keyword arguments.
        batch_size: Samples in a batch.
        nb_worker: Worker processes; 0 makes batches in this process.
        max_minibatch_length: The most bytes that a batch may have; measured if not given.
        max_queue_size: Batches that each worker may be ahead.
        prefetch_time: Wait here until the queue is full, but no longer than so many seconds.
        shuffle: Whether each epoch comes in an order of its own.
        device: Where batches are moved to.
        pin_memory: Whether batches that stay in the host's memory are page-locked. On their way to a device they are
            anyway.
        gpu_indices: For each worker, the GPU that its dataset sees as its only one.
        nearby_shuffle: Samples are shuffled only with those that are nearer than this in the dataset, whose end counts
            as near its begin; 0 is no limit.
        cache_setting: Keeps samples from one epoch to the next.
        rotation_setting: Uses each sample several times in an epoch.
        use_threading: A thread for each worker instead of one for all.
        collate_fn: Makes a batch of a list of samples.

    Raises:
        ConfigError: if an argument is wrong, or the dataset cannot be used.
        WorkerStartFailed: if the dataset cannot be built.
        DataError, LayoutError, NoRoom: if the first batch cannot be made.

    Example:
        >>> from swift_loader import DataLoader
        >>> with DataLoader(range, {"stop": 5}, batch_size=2, nb_worker=0) as loader:  # doctest: +SKIP
        ...     batches = list(loader)
    """

    _words: ClassVar = {
        "worker_per_consumer": "nb_worker",
        "dataset_kwargs": "dataset_params",
        "max_batch_nbytes": "max_minibatch_length",
        "the device in loader.start(rank, device)": "device",
    }
    """What is called otherwise here than by `SwiftLoader`."""

    @explained(words=_words)
    def __init__(  # noqa: PLR0913, PLR0917 - the document's signature
        self,
        dataset_class: Callable[..., Any],
        dataset_params: dict[str, Any] | None,
        batch_size: int,
        nb_worker: int,
        max_minibatch_length: int | None = None,
        max_queue_size: int = 20,
        prefetch_time: float | None = None,
        shuffle: bool = False,  # noqa: FBT001, FBT002 - the document's signature
        device: torch.device | str | int | None = None,
        pin_memory: bool = False,  # noqa: FBT001, FBT002 - the document's signature
        gpu_indices: Sequence[int] | None = None,
        nearby_shuffle: int = 0,
        cache_setting: CacheSetting | dict[str, Any] | None = None,
        rotation_setting: RotationSetting | Mapping[str, Any] | None = None,
        use_threading: bool = False,  # noqa: FBT001, FBT002 - the document's signature
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self._loader: SwiftLoader | None = None
        workers = checks.whole(self._words["worker_per_consumer"], nb_worker, least=0)
        queue_size = checks.whole("max_queue_size", max_queue_size, least=1)
        wait_s = 0.0 if prefetch_time is None else checks.number("prefetch_time", prefetch_time, least=0, of="seconds")
        if max_minibatch_length is not None:
            checks.whole("max_minibatch_length", max_minibatch_length, least=1, of="bytes")
        pins = checks.flag("pin_memory", pin_memory) and device is None and _can_pin()
        settings: Settings = {
            "even": "none",
            "nearby_shuffle": nearby_shuffle,
            "nearby_mix": 1,
            "multithread": checks.flag("use_threading", use_threading),
            "collate_fn": collate_fn,
            "cache_setting": cache_setting,
            "rotation_setting": rotation_setting,
            "max_batch_nbytes": max_minibatch_length,
            "data_queue_size": queue_size * max(1, workers),
            "message_queue_size": queue_size,
            "max_buffer_size": queue_size,
        }
        if gpu_indices is not None:
            settings["worker_init"] = _gpus(gpu_indices, workers)
        kwargs = checked_kwargs(dataset_params, "dataset_params")
        loader = SwiftLoader(dataset_class, kwargs, batch_size, 1, workers, shuffle, **settings)
        self._loader = loader
        loader.start(0, device, _pinned if pins else None)
        try:
            if wait_s and workers:
                _wait_for(loader, min(len(loader), queue_size * workers), wait_s)
        except BaseException:  # such as Ctrl-C: nobody has the loader yet
            self.close()
            raise

    def __iter__(self) -> Iterator[Any]:
        """The next epoch."""
        return iter(self._running)

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return len(self._running)

    @property
    def dataset(self) -> Any:
        """The dataset, in this process: built at first use."""
        return self._running.dataset

    @property
    def batch_size(self) -> int:
        """Samples in a batch."""
        return self._running.batch_size

    @property
    def worker_pids(self) -> list[int]:
        """See `SwiftLoader.worker_pids`."""
        return self._running.worker_pids

    def set_epoch(self, epoch: int) -> None:
        """See `SwiftLoader.set_epoch`."""
        self._running.set_epoch(epoch)

    def replay(self, epoch: int, step: int) -> Any:
        """See `SwiftLoader.replay`."""
        return self._running.replay(epoch, step)

    def state_dict(self) -> dict[str, int | str]:
        """See `SwiftLoader.state_dict`."""
        return self._running.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `SwiftLoader.load_state_dict`."""
        self._running.load_state_dict(state)

    def statistics(self) -> dict[str, float]:
        """See `SwiftLoader.statistics`."""
        return self._running.statistics()

    def close(self) -> None:
        """Ends the workers. May be called twice."""
        if self._loader is not None:
            self._loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._loader).replace("SwiftLoader", type(self).__name__, 1)

    @property
    def _running(self) -> SwiftLoader:
        assert self._loader is not None
        return self._loader


class AsyncDataLoader(DataLoader):
    """A `DataLoader` that calls its workers servers. All else is as there.

    Example:
        >>> from swift_loader import AsyncDataLoader
        >>> with AsyncDataLoader(range, {"stop": 5}, batch_size=2, nb_servers=0) as loader:  # doctest: +SKIP
        ...     batches = list(loader)
    """

    _words: ClassVar = {**DataLoader._words, "worker_per_consumer": "nb_servers"}

    @explained(words=_words)
    def __init__(  # noqa: PLR0913, PLR0917 - as `DataLoader`
        self,
        dataset_class: Callable[..., Any],
        dataset_params: dict[str, Any] | None,
        batch_size: int,
        nb_servers: int,
        max_minibatch_length: int | None = None,
        max_queue_size: int = 20,
        prefetch_time: float | None = None,
        shuffle: bool = False,  # noqa: FBT001, FBT002 - as `DataLoader`
        device: torch.device | str | int | None = None,
        pin_memory: bool = False,  # noqa: FBT001, FBT002 - as `DataLoader`
        gpu_indices: Sequence[int] | None = None,
        nearby_shuffle: int = 0,
        cache_setting: CacheSetting | dict[str, Any] | None = None,
        rotation_setting: RotationSetting | Mapping[str, Any] | None = None,
        use_threading: bool = False,  # noqa: FBT001, FBT002 - as `DataLoader`
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        super().__init__(
            dataset_class,
            dataset_params,
            batch_size,
            nb_servers,
            max_minibatch_length=max_minibatch_length,
            max_queue_size=max_queue_size,
            prefetch_time=prefetch_time,
            shuffle=shuffle,
            device=device,
            pin_memory=pin_memory,
            gpu_indices=gpu_indices,
            nearby_shuffle=nearby_shuffle,
            cache_setting=cache_setting,
            rotation_setting=rotation_setting,
            use_threading=use_threading,
            collate_fn=collate_fn,
        )


def _gpus(gpu_indices: Any, worker_count: int) -> OneGpuEach:
    given = gpu_indices if isinstance(gpu_indices, list | tuple | range) else [None]
    indices = [number for index in given if (number := checks.whole_number(index)) is not None and number >= 0]
    if len(indices) != len(given):
        raise ConfigError(f"gpu_indices must be a list of whole numbers from 0 on, not {gpu_indices!r}")
    if not indices or len(indices) != worker_count:
        raise ConfigError(
            f"gpu_indices must name a GPU for each of the {worker_count} workers, and names {len(indices)}: {indices}"
        )
    return OneGpuEach(indices)


def _wait_for(loader: SwiftLoader, batch_count: int, seconds: float) -> None:
    until, tick = monotonic() + seconds, Event()
    while loader.statistics()["slots_full"] < batch_count and monotonic() < until:
        tick.wait(_LOOK_S)


def _can_pin() -> bool:
    import torch  # noqa: PLC0415 - importing the package must not import torch

    if torch.accelerator.current_accelerator(check_available=True) is not None:
        return True
    warn_user("pin_memory=True has no effect: there is no accelerator here that memory could be page-locked for")
    return False


def _pinned(batch: Any, _device: Any) -> Any:
    from swift_loader.device.moving import mapped  # noqa: PLC0415 - as above

    return mapped(batch, lambda tensor: tensor.pin_memory())
