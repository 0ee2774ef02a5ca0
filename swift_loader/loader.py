"""SwiftLoader: the front door, and the data path as the consumer's thread sees it.

    A-F   tickets, orders, workers, parcels                  pool/
    G     parcels are merged in step order                   pool/merge.py
    H     the parcel lands: views of its slot become tensors  `_land` -> device/
    I     the batch is handed out, the wait is noted          `Epoch.__next__`
    J     the batch is dropped, its slot goes home            pool/lease.py

Constructing checks and stores; only `start` makes processes.
"""

from __future__ import annotations

import itertools
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self, Unpack

from swift_loader import ranks
from swift_loader.config import LoaderConfig, Settings
from swift_loader.device.stage import Cargo, Stage
from swift_loader.engines.local import LocalEngine
from swift_loader.errors import ConfigError, LoaderClosed, SwiftLoaderError
from swift_loader.plan.plan import EpochPlan, Plan
from swift_loader.pool.dispatch import Failed, Full
from swift_loader.pool.inline import InlinePool
from swift_loader.pool.memory import default_budget
from swift_loader.pool.pool import Pool
from swift_loader.pool.recipe import Recipe, checked_length
from swift_loader.telemetry import BatchRecord, Log, Recorder

if TYPE_CHECKING:
    import torch

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
        self._runtime: _Runtime | None = None
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
        runtime = _Runtime(recipe, _stage(config, device, to_device))
        self._runtime = runtime
        try:
            runtime.open(self._ordinal)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Any]:
        """An epoch, which begins when its first batch is asked for."""
        return Epoch(self)

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
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
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
        warnings.warn(f"{self!r} was not closed: use `with`, or call close()", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        name = getattr(self._dataset_class, "__name__", repr(self._dataset_class))
        state = "closed" if self._closed else "new" if self._runtime is None else repr(self._runtime)
        config = self._config
        return f"<SwiftLoader {name} {config.consumer_count}x{config.worker_count} batch_size={config.batch_size} {state}>"

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

    def _started(self) -> _Runtime:
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
                f"which of the {count} consumers is this? Call loader.start(consumer_index, device) before iterating, for "
                "example loader.start(fabric.global_rank, fabric.device)"
            )
        self.start(consumer, _current_device())
        assert self._runtime is not None
        return self._runtime


class _Runtime:
    """A loader that was started: its pool, its stage, and where it is in the stream."""

    def __init__(self, recipe: Recipe, stage: Stage) -> None:
        config = recipe.config
        self.pid = os.getpid()
        self.consumer = recipe.consumer
        self.plan: Plan | None = None
        self.epoch = 0
        """The epoch that is iterated, or was last."""
        self.current: Epoch | None = None
        self._next_epoch = 0
        self._stream = (0, 0)
        self._taken: tuple[int, int, int] | None = None
        self._recipe = recipe
        self._stage = stage
        log = config.log
        self._log = None if log is None else Log(log.path, stdout=log.stdout, level=log.level, consumer=recipe.consumer)
        path = _benchmark_path(config.benchmark_file, recipe)
        self._recorder = Recorder(recipe.consumer, path, self._log) if config.benchmark else None
        budget = config.memory_budget or default_budget(config.consumer_count)
        self._pool: Pool | InlinePool
        if config.worker_count == 0:
            self._pool = InlinePool(recipe)
        else:
            self._pool = Pool(recipe, LocalEngine(recipe, config.start_method), budget)

    def open(self, ordinal: int) -> None:
        self.plan = self._pool.open()
        config = self._recipe.config
        if isinstance(self._pool, Pool):
            ranks.Agreement(self.consumer, ordinal, self._pool.broke).check(self.plan.fingerprint(), config.consumer_count)
        self._tell_unequal_steps(self.plan)
        if self._log is not None:
            self._log.info("started", workers=config.worker_count, steps=self.plan.step_count(0, self.consumer))

    def begin(self, epoch: Epoch) -> int:
        """An iteration takes its first batch; gives back how many there are."""
        assert self.plan is not None
        self.current = epoch
        self.epoch = self._next_epoch
        self._next_epoch += 1
        if self._stream != (self.epoch, 0):
            self._pool.restart(self.epoch, 0)
            self._stream = (self.epoch, 0)
        return self.plan.step_count(self.epoch, self.consumer)

    def next_batch(self, step_count: int, busy_ns: int) -> Any:
        """Takes a delivery, lands it and notes what it cost."""
        asked = perf_counter_ns()
        delivery = self._pool.take()
        epoch, step = self._stream
        self._stream = (epoch, step + 1) if step + 1 < step_count else (epoch + 1, 0)
        if isinstance(delivery, Failed):
            raise self._pool.error_of(delivery)
        came = perf_counter_ns()
        batch = self._land(delivery)
        ticket, parcel = delivery.ticket, delivery.parcel
        self._taken = (ticket.epoch, ticket.step, parcel.rows)
        if self._recorder is not None:
            self._recorder.batch(
                BatchRecord(
                    ticket.epoch, ticket.step, delivery.line.number, parcel.rows, parcel.nbytes, parcel.fetch_ns,
                    parcel.collate_ns, parcel.encode_ns, parcel.order_wait_ns, came - delivery.came_ns,
                    perf_counter_ns() - came, came - asked, busy_ns, parcel.slowest_ns, parcel.slowest_index,
                )  # fmt: skip
            )
        return batch

    def end(self) -> None:
        """An iteration has taken its last batch."""
        if self._recorder is not None:
            self._recorder.epoch(self.epoch)

    def set_epoch(self, epoch: int) -> None:
        if epoch not in (self.epoch, self._next_epoch):
            self._next_epoch = epoch

    def last_batch_mask(self) -> torch.Tensor:
        import torch  # noqa: PLC0415 - importing the package must not import torch

        if self._taken is None:
            raise ConfigError("last_batch_mask tells about the batch handed out last, and none was")
        epoch, step, rows = self._taken
        plan = self.plan
        mask = plan.mask(epoch, self.consumer, step) if isinstance(plan, EpochPlan) else None
        return torch.ones(rows, dtype=torch.bool) if mask is None else torch.tensor(mask)

    def statistics(self) -> dict[str, float]:
        recorded = {} if self._recorder is None else self._recorder.statistics()
        return {**recorded, **self._pool.statistics(), "epoch": self.epoch}

    def abandon(self) -> None:
        self._pool.abandon()

    def close(self) -> None:
        self._pool.close()
        self._stage.close()
        if self._recorder is not None:
            self._recorder.close()
        if self._log is not None:
            self._log.close()

    def __repr__(self) -> str:
        return f"consumer {self.consumer}, epoch {self._stream[0]}, step {self._stream[1]}"

    def _land(self, delivery: Full) -> Any:
        parcel = delivery.parcel
        hold = self._pool.hold(parcel)
        attached = parcel.attachment
        assert parcel.spec is not None
        stream, spans = (None, []) if attached is None else (attached.stream, attached.spans)
        cargo = Cargo(parcel.spec, parcel.rows, hold.memory, hold.views, stream, spans, hold.array)
        try:
            return self._stage.land(cargo)
        finally:
            hold.landed()

    def _tell_unequal_steps(self, plan: Plan) -> None:
        count = self._recipe.config.consumer_count
        steps = [plan.step_count(0, consumer) for consumer in range(count)] if count <= _MANY_RANKS else []
        if len(set(steps)) > 1:
            warnings.warn(
                f"consumers take {steps} batches per epoch: a rank with fewer leaves the others waiting in a collective. "
                "Set even='pad' and look at loader.last_batch_mask, or wrap the loop in torch's Join",
                stacklevel=4,
            )


#: Of more ranks than this it is not looked at each whether they take as many steps.
_MANY_RANKS = 4096


class Epoch:
    """One iteration over one epoch."""

    def __init__(self, loader: SwiftLoader) -> None:
        self._loader = loader
        self._runtime: _Runtime | None = None
        self._left = -1
        self._step_count = 0
        self._handed_ns = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        runtime = self._runtime
        if runtime is None:
            runtime = self._runtime = self._loader._started()
            self._left = self._step_count = runtime.begin(self)
            self._handed_ns = perf_counter_ns()
        if self._left == 0:
            raise StopIteration
        if runtime.current is not self:
            raise SwiftLoaderError("this iteration was left when another one began: only the newest goes on")
        self._loader._refuse_closed()
        self._left -= 1
        try:
            return runtime.next_batch(self._step_count, perf_counter_ns() - self._handed_ns)
        finally:
            self._handed_ns = perf_counter_ns()
            if self._left == 0:
                runtime.end()

    def __len__(self) -> int:
        return len(self._loader)


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
            f"dataset_class must be a class (or a function) that makes the dataset, not a {type(dataset_class).__name__}; "
            "for a dataset that exists already there is SwiftLoader.from_dataset"
        )
    if not isinstance(dataset_class, type):
        return
    iterable = any(base.__name__ == "IterableDataset" for base in dataset_class.__mro__)
    if iterable or not hasattr(dataset_class, "__getitem__"):
        raise ConfigError(
            f"{dataset_class.__name__} cannot be asked for a sample by index: SwiftLoader takes map-style datasets, with "
            "__getitem__ and __len__. Write an iterable one into shards once, or put it behind a data server"
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


def _benchmark_path(path: str | None, recipe: Recipe) -> str | None:
    """One file for each consumer."""
    if path is None or recipe.config.consumer_count == 1:
        return path
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}-{recipe.consumer}{whole.suffix}"))
