"""For Lightning: one line for Fabric, a data module for the Trainer.

``trainer.fit(model, train_dataloaders=loader)`` needs nothing of this: a loader with one consumer for each rank starts
by itself, and Lightning keeps its state in the checkpoint. The data module adds what a plain loader cannot know: the
Trainer's device, when to end the workers, and the seed of a loader that was given none. Knows of loaders what their
users know, and of Lightning only what is public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import torch
from lightning.pytorch import Callback, LightningDataModule

from swift_loader.errors import ConfigError
from swift_loader.loader import SwiftLoader

if TYPE_CHECKING:
    from lightning.fabric import Fabric
    from lightning.pytorch import Trainer

Loaders = SwiftLoader | Sequence["Loaders"] | Mapping[str, "Loaders"]
"""A loader, or several in lists and dicts, as Lightning takes them."""

Source = Loaders | Sequence["Source"] | Mapping[str, "Source"] | Callable[[], Loaders]
"""The same, where each may be a function that makes it."""


@overload
def setup_loaders(fabric: Fabric, loader: SwiftLoader, /, *, move_to_device: bool = True) -> SwiftLoader: ...


@overload
def setup_loaders(fabric: Fabric, /, *loaders: SwiftLoader, move_to_device: bool = True) -> list[SwiftLoader]: ...


def setup_loaders(
    fabric: Fabric, /, *loaders: SwiftLoader, move_to_device: bool = True
) -> SwiftLoader | list[SwiftLoader]:
    """Starts loaders as this rank's consumer, where ``fabric.setup_dataloaders`` would refuse all but torch's own.

    Args:
        fabric: After its ``launch()``: before, there are no ranks.
        *loaders: One or more, with ``nb_consumer=fabric.world_size``.
        move_to_device: Whether batches come on ``fabric.device``, or stay in the host's memory.

    Returns:
        The loaders themselves: one as it is, several as a list, as Fabric does.

    Raises:
        ConfigError: if a loader has not as many consumers as there are ranks, or there are no ranks yet.

    Example:
        >>> train_loader, test_loader = setup_loaders(fabric, train_loader, test_loader)  # doctest: +SKIP
    """
    if not loaders:
        raise ConfigError("setup_loaders(fabric, loader, ...) takes at least one loader")
    for loader in loaders:
        _check(loader, "setup_loaders")
        _check_consumers(loader, fabric.world_size, "fabric")
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if fabric.world_size > 1 and not distributed:
        raise ConfigError("there are no ranks yet: call fabric.launch() before setup_loaders")
    for loader in loaders:
        loader.start(fabric.global_rank, fabric.device if move_to_device else None)
    return loaders[0] if len(loaders) == 1 else list(loaders)


class SwiftDataModule(LightningDataModule):
    """Loaders for a Trainer: each starts as the rank's consumer when it is needed, with its device.

    Each argument is a loader, a function without arguments that makes one, or a list or dict of these. Functions are
    called when the ranks exist, and what they make is closed when the Trainer is done with it, or fails. A loader that
    is given as it is belongs to the giver, who closes it.

    Args:
        train: For ``trainer.fit``.
        validation: For ``trainer.fit`` and ``trainer.validate``.
        test: For ``trainer.test``.
        predict: For ``trainer.predict``.

    Example:
        >>> data = SwiftDataModule(train=lambda: SwiftLoader(Pictures, {}, 32, trainer.world_size, 4))  # doctest: +SKIP
        >>> trainer.fit(model, datamodule=data)  # doctest: +SKIP
    """

    def __init__(
        self,
        train: Source | None = None,
        validation: Source | None = None,
        test: Source | None = None,
        predict: Source | None = None,
    ) -> None:
        super().__init__()
        self._sources: dict[str, Any] = {"train": train, "validation": validation, "test": test, "predict": predict}
        self._in_use: dict[str, Loaders] = {}
        self._made: dict[str, list[SwiftLoader]] = {}
        self._started: list[SwiftLoader] = []
        self._states: list[dict[str, Any]] = []
        """What the loaders for training are to go on from."""
        self._last: list[dict[str, Any]] = []
        """Where they were when they were last asked."""
        hooks = ("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader")
        for hook, (use, source) in zip(hooks, self._sources.items(), strict=True):
            if source is not None:  # Lightning looks whether a hook is overridden to know what there is
                setattr(self, hook, partial(self._loaders, use))

    def _loaders(self, use: str) -> Loaders:
        """What Lightning's hook gives back. It asks again only with ``reload_dataloaders_every_n_epochs``."""
        trainer: Any = self.trainer  # what Lightning says of its attributes lacks some
        if trainer is None:
            raise ConfigError("a SwiftDataModule starts its loaders as the ranks of a Trainer: give it to one")
        if trainer.overfit_batches:
            raise ConfigError(
                "overfit_batches has Lightning rebuild torch's loaders; take limit_train_batches and a small dataset"
            )
        if use in self._in_use and not trainer.reload_dataloaders_every_n_epochs:
            return self._in_use[use]
        self._close(use)
        found: Loaders = self._found(self._sources[use], self._made.setdefault(use, []))
        self._in_use[use] = found
        loaders = list(_flat(found))
        for loader in loaders:
            _check_consumers(loader, trainer.world_size, "trainer")
        if use == "train":
            self._go_on(loaders)
        for loader in loaders:
            if not any(loader is other for other in self._started):
                loader.start(trainer.global_rank, trainer.strategy.root_device)
                self._started.append(loader)
        return found

    def _found(self, source: Any, made: list[SwiftLoader]) -> Any:
        """The loaders of a source, in the same containers; those that it makes are also put into ``made``."""
        if isinstance(source, SwiftLoader):
            return source
        if callable(source):
            found = source()
            made.extend(_flat(found))
            return found
        if isinstance(source, Mapping):
            return {key: self._found(value, made) for key, value in source.items()}
        if isinstance(source, Sequence) and not isinstance(source, str):
            return [self._found(value, made) for value in source]
        _check(source, "SwiftDataModule")
        return source

    def _go_on(self, loaders: list[SwiftLoader]) -> None:
        """Loads a checkpoint's states before the workers start.

        The fit loop does so too, after, but not from a checkpoint that was saved at an epoch's end: there it sets the
        epoch only, and loaders that were given no seed would go on with another order.
        """
        states, self._states = self._states, []
        if states and len(states) != len(loaders):
            raise ConfigError(f"the checkpoint is of {len(states)} loaders for training, and there are {len(loaders)}")
        for loader, state in zip(loaders, states, strict=False):  # without a checkpoint there are no states
            loader.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """For Lightning's checkpoint: where the loaders for training are, or were in the end."""
        if "train" in self._in_use:
            self._last = [loader.state_dict() for loader in _flat(self._in_use["train"])]
        return {"train": self._last}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From Lightning's checkpoint, before loaders are made."""
        self._states = list(state_dict.get("train", []))

    def teardown(self, stage: str) -> None:  # noqa: ARG002 - Lightning's signature: one stage is over before the next
        """The Trainer is done with this stage."""
        self.state_dict()  # a checkpoint may still be saved
        self._close_all()

    def on_exception(self, exception: BaseException) -> None:  # noqa: ARG002 - Lightning's signature
        """The Trainer was interrupted, and will not come to `teardown`."""
        self._close_all()

    def _close_all(self) -> None:
        self._states = []
        for use in self._sources:
            self._close(use)

    def _close(self, use: str) -> None:
        self._in_use.pop(use, None)
        for loader in self._made.pop(use, []):
            loader.close()
            self._started = [other for other in self._started if other is not loader]


class SwiftStatistics(Callback):
    """Gives what the loaders for training count to the Trainer's loggers: TensorBoard, W&B, and their like.

    Args:
        every_n_steps: So often, and at the end of each epoch.
        prefix: Before each name. Where there are several loaders, their numbers follow it.

    Example:
        >>> trainer = Trainer(callbacks=[SwiftStatistics()])  # doctest: +SKIP
    """

    def __init__(self, every_n_steps: int = 50, prefix: str = "swift/") -> None:
        if every_n_steps < 1:
            raise ConfigError(f"every_n_steps must be at least 1, not {every_n_steps}")
        self._every_n_steps = every_n_steps
        self._prefix = prefix

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """A step is done."""
        if trainer.global_step % self._every_n_steps == 0:
            self._log(trainer)

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        """An epoch is done."""
        self._log(trainer)

    def _log(self, trainer: Trainer) -> None:
        loaders = [one for one in _leaves(trainer.train_dataloader) if isinstance(one, SwiftLoader)]
        for number, loader in enumerate(loaders):
            prefix = self._prefix if len(loaders) == 1 else f"{self._prefix}{number}/"
            figures = {prefix + name: value for name, value in loader.statistics().items()}
            for logger in trainer.loggers:  # those of other ranks than the first one write nothing
                logger.log_metrics(figures, step=trainer.global_step)


def _leaves(loaders: Any) -> Iterator[Any]:
    """All that Lightning may have been given as loaders, out of nested containers."""
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, Sequence) and not isinstance(loaders, str):
        for value in loaders:
            yield from _leaves(value)
    else:
        yield loaders


def _flat(loaders: Any) -> Iterator[SwiftLoader]:
    """All loaders in nested containers, in the order in which Lightning counts them."""
    for one in _leaves(loaders):
        _check(one, "SwiftDataModule")
        yield one


def _check(loader: Any, where: str) -> None:
    if not isinstance(loader, SwiftLoader):
        raise ConfigError(f"{where} takes SwiftLoaders, not a {type(loader).__name__}: {loader!r}")


def _check_consumers(loader: SwiftLoader, rank_count: int, whose: str) -> None:
    if loader.nb_consumer != rank_count:
        raise ConfigError(
            f"{loader!r} has nb_consumer={loader.nb_consumer}, and {whose} has {rank_count} ranks: set "
            f"nb_consumer={whose}.world_size. Where several ranks work on the same batches, leave this out and call "
            "loader.start(consumer_index, device)"
        )
