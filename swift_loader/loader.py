"""SwiftLoader: the front door.

Constructing checks and stores, and lets what takes time begin; `start` makes workers. What then runs is told in
`runtime`.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from swift_loader.consumer import flight
from swift_loader.consumer.epoch import Epoch
from swift_loader.consumer.placement import (
    checked_epoch,
    checked_index,
    current_device,
    name_of,
    own_count,
    own_index,
    stage_of,
)
from swift_loader.consumer.ranks import Lot
from swift_loader.consumer.replay import Replay
from swift_loader.consumer.runtime import Runtime, refuse_other_settings
from swift_loader.consumer.samples import STARTED_IS_NOT_SENT, Samples
from swift_loader.consumer.torchlike import TorchLike
from swift_loader.engines.choose import begin_early
from swift_loader.errors import ConfigError, LoaderClosed
from swift_loader.plan.position import State
from swift_loader.pool.reuse import origin_for
from swift_loader.settings.arguments import Settings
from swift_loader.settings.keywords import explained
from swift_loader.settings.loader import LoaderConfig, check_dataset_class, checked_kwargs
from swift_loader.wire.recipe import Recipe

if TYPE_CHECKING:
    import torch

    from swift_loader.tuning import Tuning, Wishes


class SwiftLoader(TorchLike):
    """Streams batches of a map-style dataset to the consumers (GPUs, ranks) of a training job.

    Args:
        dataset_class: What each worker builds; classes of ``__main__``, lambdas and closures are welcome.
        dataset_kwargs: Its keyword arguments.
        batch_size: Samples in one consumer's batch.
        nb_consumer: How many GPUs, or ranks, train.
        worker_per_consumer: Child processes for each of them; 0 makes batches in the training process itself.
        shuffle: Whether each epoch comes in an order of its own.
        **settings: See `swift_loader.settings.arguments.Settings` or docs/arguments.md.

    Raises:
        ConfigError: if a setting is wrong.

    Example:
        >>> from swift_loader import SwiftLoader
        >>> with SwiftLoader(range, {}, 2, 1, 0, shuffle=False) as loader:  # doctest: +SKIP
        ...     loader.start(consumer_index=0)
        ...     batches = list(loader)
    """

    @explained(known=Settings.__optional_keys__)
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
        check_dataset_class(dataset_class)
        self._samples = Samples(dataset_class, checked_kwargs(dataset_kwargs))
        self._lot = Lot(self._config)
        self._restarts = 0
        self._state = State.of_epoch()
        """What to go on from: the beginning, or what was loaded."""
        self._start_arguments: tuple[Any, ...] = ()
        begin_early(self._config, dataset_class)

    @classmethod
    @explained(known=Settings.__optional_keys__)
    def from_dataset(
        cls,
        dataset: Any,
        batch_size: int,
        nb_consumer: int,
        worker_per_consumer: int,
        shuffle: bool = True,  # noqa: FBT001, FBT002 - as the constructor
        **settings: Unpack[Settings],
    ) -> Self:
        """A loader for a dataset that exists already; workers get copies that share arrays and tensors."""
        samples = Samples.of(dataset)
        loader = cls(type(dataset), {}, batch_size, nb_consumer, worker_per_consumer, shuffle, **settings)
        loader._samples = samples
        return loader

    @classmethod
    def connect(cls, servers: str, key: str | Path | None = None, **settings: Unpack[Settings]) -> Self:
        """A loader whose batches are made by servers (`serve`), with the settings that they have: docs/server.md."""
        from swift_loader.serving.connecting import connected  # noqa: PLC0415 - msgspec is an extra

        return cls.from_dataset(**connected(servers, key, settings), **settings)

    def serve(self, address: str = "tcp://127.0.0.1:5557", *, key: Any = None, version: str | None = None) -> None:
        """Makes batches for loaders that `connect`, until the process is ended. All words: docs/server.md."""
        from swift_loader.serving.server import serve  # noqa: PLC0415 - msgspec is an extra

        self._refuse_closed()
        serve(self._recipe, address, key, version)

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
                moves all tensors and numpy arrays in nested containers. It runs when the batch is asked for, on this
                thread and its current stream; what it copies must be done on that stream, or be waited for by it.

        Raises:
            ConfigError: if an argument is wrong, or the dataset cannot be used.
            WorkerStartFailed: if the dataset cannot be built.
            DataError, LayoutError, NoRoom: if the first batch cannot be made (with ``validate``).
            RankMismatch: if another rank was set otherwise.
        """
        self._refuse_closed()
        if self._runtime is not None:
            raise ConfigError("start() was called already: one loader serves one consumer, once")
        self._start(consumer_index, device, to_device)

    def _start(self, consumer_index: int, device: Any, to_device: Callable[[Any, Any], Any] | None) -> Runtime:
        self._start_arguments = (consumer_index, device, to_device)
        recipe = self._recipe(checked_index(consumer_index, self._config.consumer_count))
        runtime = Runtime(recipe, stage_of(self._config, device, to_device), name_of(device))
        self._runtime = runtime
        try:
            self._refuse_closed()  # by another thread, or a signal handler, which has seen no runtime
            runtime.open(f"{self._lot.ordinal}.{self._restarts}")
            self._samples.counted(runtime.sample_count)
            runtime.resume(self._state)
        except BaseException:
            self.close()
            raise
        return runtime

    def _recipe(self, consumer_index: int | None) -> Recipe:
        """What workers are told; for which consumer, if that is not clear."""
        runtime, config, samples = self._runtime, self._config, self._samples
        if consumer_index is None and runtime is None and config.consumer_count > 1:
            raise ConfigError(f"consumer_index: which of the {config.consumer_count} consumers is meant?")
        known = 0 if runtime is None else runtime.consumer
        return Recipe(
            dataset_class=samples.dataset_class if samples.given is None else None,
            dataset_kwargs=samples.dataset_kwargs,
            dataset=samples.given,
            config=config,
            seed=self._agreed_seed() if runtime is None else runtime.recipe.seed,
            consumer=known if consumer_index is None else checked_index(consumer_index, config.consumer_count),
            origin=origin_for(config, samples.dataset_class, samples.dataset_kwargs, samples.given),
        )

    def __iter__(self) -> Iterator[Any]:
        """An epoch, which begins when its first batch is asked for."""
        return Epoch(self._started)

    def __len__(self) -> int:
        """How many batches this consumer takes per epoch. Before `start` the dataset is built here to be counted.

        Raises:
            ConfigError: if that depends on the consumer, and it is not clear which one this is.
        """
        runtime = self._runtime
        if runtime is not None and runtime.plan is not None:
            return runtime.plan.step_count(runtime.course.epoch, runtime.consumer)
        config = self._config
        plan = Recipe(None, {}, None, config, self._lot.seed, 0).plan(self._samples.facts_for(config.plan))
        return own_count([plan.step_count(0, consumer) for consumer in range(config.consumer_count)])

    def __bool__(self) -> bool:
        """There is a loader; how many batches it has is not asked, for which a dataset might have to be built."""
        return True

    @property
    def dataset(self) -> Any:
        """The dataset, in this process: built at first use, which `len` and `isinstance` after `start` are not."""
        return self._samples.dataset

    @property
    def last_batch_mask(self) -> torch.Tensor:
        """For the batch handed out last: False for a sample that only repeats another to fill up, else True."""
        runtime = self._started()
        return runtime.course.mask(runtime.plan)

    @property
    def nb_consumer(self) -> int:
        """How many GPUs, or ranks, it serves."""
        return self._config.consumer_count

    @property
    def worker_pids(self) -> list[int]:
        """The processes that make batches now, for who wants to look at them; those that are replaced have others."""
        return [] if self._runtime is None else self._runtime.worker_pids()

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration be this epoch, from its beginning: each time that it is called, also for one that was.

        What is being iterated goes on. Only after `load_state_dict`, and before a batch was taken, the epoch in which
        the state was saved stays where it was left: there, to name it is to go on with it.
        """
        epoch = checked_epoch(epoch)
        self._refuse_closed()
        if self._runtime is not None:
            self._runtime.course.set_epoch(epoch)
        else:
            self._state = self._state.turned_to(epoch)

    def state_dict(self) -> dict[str, int | str]:
        """Where this consumer is: at most 1 KB, at any step, for `load_state_dict`.

        What was prefetched is not in it and is made again; what was handed out is not handed out again.

        Example:
            >>> from swift_loader import SwiftLoader
            >>> loader = SwiftLoader(range, {}, 2, 1, 0, seed=3)
            >>> loader.state_dict()["step"]
            0
        """
        runtime = self._runtime
        if runtime is None or runtime.plan is None:
            try:
                seed = self._agreed_seed()
            except ConfigError:  # ranks have yet to find each other
                seed = None
            return dataclasses.replace(self._state, seed=seed).to_dict()
        return State(runtime.course.position, runtime.recipe.seed, runtime.settings()).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next iteration go on where the state was taken, with the rest of that epoch.

        May be called before or after `start`. ``worker_per_consumer`` may have changed, and with ``elastic=True`` the
        number of consumers, as long as ``batch_size * nb_consumer`` is the same.

        Raises:
            ConfigError: if the state does not fit this loader: here, or in `start` for what is known only then.
        """
        self._refuse_closed()
        loaded = State.from_dict(state)
        config = self._config
        if config.seed is not None and loaded.seed not in (None, config.seed):
            raise ConfigError(f"the state does not fit this loader: seed was {loaded.seed} and is {config.seed}")
        refuse_other_settings(loaded, config, self._lot.seed)
        self._state = loaded
        runtime = self._runtime
        if runtime is None:
            return
        if loaded.seed in (None, runtime.recipe.seed):
            runtime.resume(loaded)
            return
        runtime.close()  # its workers draw from another seed
        self._runtime = None
        self._restarts += 1
        self._start(*self._start_arguments)

    def statistics(self) -> dict[str, float]:
        """What was measured since `start`, as a flat dict for any logger (docs/benchmark.md); starts nothing."""
        return {} if self._runtime is None else self._runtime.statistics()

    def report(self, *, all_ranks: bool = False, timeout_s: float = 10.0) -> str:
        """What the last epoch was spent on, what to change, and what that would bring: a page of 80 columns.

        Starts nothing, and may be called at any time: in the first epoch it tells of that one so far, after `close` of
        the last one. With ``all_ranks`` a table of every consumer follows, through the key-value store of the process
        group, so no other rank has to call this; those that are not as far after ``timeout_s`` are shown as missing.

        Example:
            >>> from swift_loader import SwiftLoader
            >>> print(SwiftLoader(range, {}, 2, 1, 0).report())
            swift_loader: nothing to report yet: the loader was not started
        """
        runtime = self._runtime
        if runtime is None or runtime.plan is None:
            return "swift_loader: nothing to report yet: the loader was not started"
        return f"{runtime.report()}\n\n{runtime.rank_table(timeout_s)}" if all_ranks else runtime.report()

    def replay(self, epoch: int, step: int, consumer_index: int | None = None) -> Any:
        """Makes a batch again, in this process: the same samples and random numbers, in the host's memory.

        The dataset is built anew for it. May be called before `start`, meanwhile and after `close`, and changes nothing
        of what is delivered. ``consumer_index`` is by default the consumer that was started, or the only one.

        Raises:
            ConfigError: if there is no such batch.
            DataError, LayoutError, NoRoom: if it cannot be made; the cause is the dataset's own error.
        """
        with Replay(self._recipe(consumer_index)) as replay:
            return replay.batch(epoch, step)

    def save_replay(self, path: str | Path) -> None:
        """Writes what ``swift-loader replay --state path`` needs, to make any batch of this loader in another process.

        It is for this user alone: reading it runs what is in it.

        Raises:
            ConfigError: if the dataset or a function of the settings cannot be pickled.
        """
        place = Path(path).absolute()
        flight.save(place, self._recipe(0))
        if self._runtime is not None:
            self._runtime.flight.written_to(place)

    def tune(self, consumer_ms: float = 0.0, **wishes: Unpack[Wishes]) -> Tuning:
        """Finds how many workers, threads and queued batches these settings want on this machine, in short runs.

        It makes and closes loaders of its own. ``consumer_ms`` is how long a training step takes; with 0 batches are
        taken as fast as they come. `swift_loader.tuning.Wishes` tells the other arguments.
        """
        from swift_loader import tuning  # noqa: PLC0415 - who does not tune does not pay for it

        self._refuse_closed()
        if self._runtime is not None:
            raise ConfigError("tune() starts loaders of its own: call it on a loader that was not started")
        subject = tuning.Subject.of(self._samples.dataset_class, self._samples.dataset_kwargs)
        return tuning.tuned(self._config, subject, self._set_otherwise, consumer_ms, wishes)

    def _set_otherwise(self, config: LoaderConfig) -> Self:
        """The same loader with other settings, from the beginning."""
        other = copy.copy(self)
        other._config, other._state = config, State.of_epoch()
        return other

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
        if runtime is None or self._closed or os is None:  # at the very end of an interpreter its modules are gone
            return
        if os.getpid() == runtime.pid:
            if not sys.is_finalizing():  # else its threads have ended, the rest ends with it, and names are gone
                runtime.abandon()
            text = f"{self!r} was not closed: use `with`, or call close()"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        name = getattr(self._samples.dataset_class, "__name__", repr(self._samples.dataset_class))
        state = "closed" if self._closed else "new" if self._runtime is None else repr(self._runtime)
        config = self._config
        size = f"{config.consumer_count}x{config.worker_count} batch_size={config.batch_size}"
        return f"<SwiftLoader {name} {size} {state}>"

    def __getstate__(self) -> dict[str, Any]:
        if self._runtime is not None:
            raise ConfigError(STARTED_IS_NOT_SENT)
        return self.__dict__.copy()

    def _agreed_seed(self) -> int:
        return self._lot.agreed() if self._state.seed is None else self._state.seed

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LoaderClosed("this loader was closed; make another one")
        if self._runtime is not None and self._runtime.closed:
            raise LoaderClosed(self._runtime.why_closed)

    def _started(self) -> Runtime:
        """The running loader; started by itself where there is no doubt which consumer this is."""
        self._refuse_closed()
        if self._runtime is not None:
            return self._runtime
        return self._start(own_index(self._config.consumer_count), current_device(), None)
