"""SwiftLoader: the front door.

Constructing checks and stores; only `start` makes processes. What then runs is told in `runtime`.
"""

from __future__ import annotations

import itertools
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, Unpack

from swift_loader import ranks
from swift_loader.config import LoaderConfig, Settings
from swift_loader.errors import ConfigError, LoaderClosed
from swift_loader.pool.recipe import Recipe, checked_length
from swift_loader.runtime import Epoch, Runtime

if TYPE_CHECKING:
    import torch

    from swift_loader.device.stage import Stage

_ordinals = itertools.count()


class SwiftLoader:
    """Streams batches of a map-style dataset to the consumers (GPUs, ranks) of a training job.

    Args:
        dataset_class: What each worker builds; classes of ``__main__``, lambdas and closures are welcome.
        dataset_kwargs: Its keyword arguments.
        batch_size: Samples in one consumer's batch.
        nb_consumer: How many GPUs, or ranks, train.
        worker_per_consumer: Child processes for each of them; 0 makes batches in the training process itself.
        shuffle: Whether each epoch comes in an order of its own.
        **settings: See `swift_loader.config.Settings` and the README's table.

    Raises:
        ConfigError: if a setting is wrong.

    Example:
        >>> from swift_loader import SwiftLoader
        >>> with SwiftLoader(range, {}, 2, 1, 0, shuffle=False) as loader:  # doctest: +SKIP
        ...     loader.start(consumer_index=0)
        ...     batches = list(loader)
    """

    def __init__(
        self,
        dataset_class: Callable[..., Any],
        dataset_kwargs: dict[str, Any] | None,
        batch_size: int,
        nb_consumer: int,
        worker_per_consumer: int,
        shuffle: bool = True,  # noqa: FBT001, FBT002 - the document's signature
        **settings: Unpack[Settings],
    ) -> None:
        self._runtime: Runtime | None = None
        self._closed = False
        self._config = LoaderConfig.parse(batch_size, nb_consumer, worker_per_consumer, shuffle, settings)
        _check_dataset_class(dataset_class)
        self._dataset_class: Callable[..., Any] | None = dataset_class
        self._dataset_kwargs = _checked_kwargs(dataset_kwargs)
        self._dataset: Any = None
        self._was_given = False
        # Drawn once and carried along when the loader is pickled or forked, so that ranks made from it agree.
        self._seed = secrets.randbits(63) if self._config.seed is None else self._config.seed
        self._built_by = os.getpid()
        self._ordinal = next(_ordinals)

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        batch_size: int,
        nb_consumer: int,
        worker_per_consumer: int,
        shuffle: bool = True,  # noqa: FBT001, FBT002 - as the constructor
        **settings: Unpack[Settings],
    ) -> Self:
        """A loader for a dataset that exists already; workers get copies, whose large arrays share memory."""
        _check_dataset_class(type(dataset))
        checked_length(dataset)
        loader = cls(type(dataset), {}, batch_size, nb_consumer, worker_per_consumer, shuffle, **settings)
        loader._dataset, loader._was_given = dataset, True
        return loader

    def start(
        self,
        consumer_index: int,
        device: torch.device | str | int | None = None,
        to_device: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Starts this consumer's workers. To be called once, before the loader is iterated.

        Args:
            consumer_index: Which part of the index space is wanted: 0 to nb_consumer - 1.
            device: Where batches should be; None leaves them as the collate made them, in the host's memory.
            to_device: Called once for each batch, as ``to_device(batch, device)``, instead of the default, which
                moves all tensors and numpy arrays in nested containers.

        Raises:
            ConfigError: if an argument is wrong, or the dataset cannot be used.
            WorkerStartFailed: if the dataset cannot be built.
            DataError, LayoutError: if the first batch cannot be made (with ``validate``).
            RankMismatch: if another rank was set otherwise.
        """
        self._refuse_closed()
        if self._runtime is not None:
            raise ConfigError("start() was called already: one loader serves one consumer, once")
        self._start(consumer_index, device, to_device)

    def _start(self, consumer_index: int, device: Any, to_device: Callable[[Any, Any], Any] | None) -> Runtime:
        config = self._config
        consumer = _checked_index(consumer_index, config.consumer_count)
        if to_device is not None and not callable(to_device):
            raise ConfigError(f"to_device must be callable as to_device(batch, device), not {to_device!r}")
        recipe = Recipe(
            dataset_class=None if self._was_given else self._dataset_class,
            dataset_kwargs=self._dataset_kwargs,
            dataset=self._dataset if self._was_given else None,
            config=config,
            seed=self._agreed_seed(),
            consumer=consumer,
        )
        runtime = Runtime(recipe, _stage(config, device, to_device))
        self._runtime = runtime
        try:
            runtime.open(self._ordinal)
        except BaseException:
            self.close()
            raise
        return runtime

    def __iter__(self) -> Iterator[Any]:
        """An epoch, which begins when its first batch is asked for."""
        return Epoch(self._started)

    def __len__(self) -> int:
        """How many batches this consumer takes per epoch.

        Raises:
            ConfigError: if that depends on the consumer, and none was started.
        """
        runtime = self._runtime
        if runtime is not None and runtime.plan is not None:
            return runtime.plan.step_count(runtime.epoch, runtime.consumer)
        config = self._config
        recipe = Recipe(None, {}, None, config, self._seed, 0)
        plan = recipe.plan(checked_length(self.dataset) if config.plan is None else 1)
        counts = {plan.step_count(0, consumer) for consumer in range(config.consumer_count)}
        if len(counts) > 1:
            raise ConfigError(f"consumers take {sorted(counts)} batches each: call start(consumer_index) before len()")
        return counts.pop()

    @property
    def dataset(self) -> Any:
        """The dataset, in this process: built at first use."""
        if self._dataset is None:
            assert self._dataset_class is not None
            self._dataset = self._dataset_class(**self._dataset_kwargs)
        return self._dataset

    @property
    def last_batch_mask(self) -> torch.Tensor:
        """For the batch handed out last: False for a sample that only repeats another to fill up, else True."""
        return self._started().last_batch_mask()

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration be this epoch, if it is neither the current one nor the next anyway."""
        if type(epoch) is not int or epoch < 0:
            raise ConfigError(f"set_epoch takes a whole number from 0 on, not {epoch!r}")
        self._started().set_epoch(epoch)

    def statistics(self) -> dict[str, float]:
        """What was measured since `start`, as a flat dict that any logger takes."""
        return self._started().statistics()

    def close(self) -> None:
        """Ends the workers. May be called twice, or not at all."""
        self._closed = True
        if self._runtime is not None:
            self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        runtime = self.__dict__.get("_runtime")
        if runtime is None or self._closed or os.getpid() != runtime.pid:
            return
        runtime.abandon()
        warnings.warn(
            f"{self!r} was not closed: use `with`, or call close()", ResourceWarning, source=self, stacklevel=2
        )

    def __repr__(self) -> str:
        name = getattr(self._dataset_class, "__name__", repr(self._dataset_class))
        state = "closed" if self._closed else "new" if self._runtime is None else repr(self._runtime)
        config = self._config
        return (
            f"<SwiftLoader {name} {config.consumer_count}x{config.worker_count} batch_size={config.batch_size} {state}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        if self._runtime is not None:
            raise ConfigError("a loader that was started cannot be pickled: send it before start()")
        return {**self.__dict__, "_built_by": None}

    def _agreed_seed(self) -> int:
        config = self._config
        travelled = self._built_by != os.getpid()
        if config.seed is not None or config.consumer_count == 1 or travelled:
            return self._seed
        return ranks.agreed_seed(self._seed, config.consumer_count, self._ordinal)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LoaderClosed("this loader was closed; make another one")

    def _started(self) -> Runtime:
        """The running loader; started by itself where there is no doubt which consumer this is."""
        self._refuse_closed()
        if self._runtime is not None:
            return self._runtime
        count = self._config.consumer_count
        distributed = ranks.world()
        if count == 1:
            consumer = 0
        elif distributed is not None and distributed.get_world_size() == count:
            consumer = distributed.get_rank()
        else:
            raise ConfigError(
                f"which of the {count} consumers is this? Call loader.start(consumer_index, device) before iterating, "
                "for example loader.start(fabric.global_rank, fabric.device)"
            )
        return self._start(consumer, _current_device(), None)


def _stage(config: LoaderConfig, device: Any, to_device: Callable[[Any, Any], Any] | None) -> Stage:
    import torch  # noqa: PLC0415 - importing the package must not import torch

    from swift_loader.device.host import HostStage  # noqa: PLC0415 - imports torch

    try:
        target = None if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device must be a torch.device, its name or its index, not {device!r}: {error}") from None
    return HostStage(config.batch_decoder, target, to_device)


def _current_device() -> torch.device | None:
    import torch  # noqa: PLC0415 - importing the package must not import torch

    if not torch.cuda.is_available():
        return None
    return torch.device("cuda", torch.cuda.current_device())


def _check_dataset_class(dataset_class: Any) -> None:
    if not callable(dataset_class):
        raise ConfigError(
            "dataset_class must be a class (or a function) that makes the dataset, not a "
            f"{type(dataset_class).__name__}; for a dataset that exists already there is SwiftLoader.from_dataset"
        )
    if not isinstance(dataset_class, type):
        return
    iterable = any(base.__name__ == "IterableDataset" for base in dataset_class.__mro__)
    if iterable or not hasattr(dataset_class, "__getitem__"):
        raise ConfigError(
            f"{dataset_class.__name__} cannot be asked for a sample by index: SwiftLoader takes map-style datasets, "
            "with __getitem__ and __len__. Write an iterable one into shards once, or put it behind a data server"
        )
    if not hasattr(dataset_class, "__len__"):
        raise ConfigError(f"{dataset_class.__name__} has no __len__: give it one that says how many samples there are")


def _checked_kwargs(kwargs: Any) -> dict[str, Any]:
    if kwargs is None:
        return {}
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise ConfigError(f"dataset_kwargs must be a dict of keyword arguments, not {kwargs!r}")
    return dict(kwargs)


def _checked_index(index: Any, count: int) -> int:
    if isinstance(index, bool) or not isinstance(index, int):
        raise ConfigError(f"consumer_index must be a whole number, not {index!r}")
    if not 0 <= index < count:
        raise ConfigError(f"consumer_index must be from 0 to {count - 1} with nb_consumer={count}, not {index}")
    return index
