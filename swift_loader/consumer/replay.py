"""Makes one batch again, in this process: the flight recorder.

Which samples, in what order, with which random numbers is a function of the settings; so nothing of a run needs to be
kept but its settings, and a batch that was made by a worker hours ago is made again here, under a debugger if need be.
Knows nothing of how a loader runs.
"""

from __future__ import annotations

from typing import Any, Self

from swift_loader.consumer.dock import landed
from swift_loader.consumer.flight import for_one_process
from swift_loader.consumer.inline import InlinePool
from swift_loader.errors import ConfigError
from swift_loader.orders.tickets import Failed
from swift_loader.plan.plan import Plan
from swift_loader.plan.position import Position
from swift_loader.settings.checks import whole
from swift_loader.wire.recipe import Recipe


class Replay:
    """The batches of one consumer, each made when it is asked for, in any order.

    The dataset is built anew, as in a worker. The generators of ``random``, ``numpy`` and ``torch`` are put back after
    each batch, since here they are the training script's.
    """

    def __init__(self, recipe: Recipe) -> None:
        from swift_loader.device.host import HostStage  # noqa: PLC0415 - importing the package must not import torch

        self._recipe = for_one_process(recipe)
        self._pool = InlinePool(self._recipe)
        self._pool.keeps_raised = True
        self._stage = HostStage(self._recipe.config.batch_decoder, None, None)
        self.plan: Plan = self._pool.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def indices(self, epoch: int, step: int) -> list[int]:
        """The samples of a batch.

        Raises:
            ConfigError: if there is no such batch.
        """
        consumer, steps = (
            self._recipe.consumer,
            self.plan.step_count(whole("epoch", epoch, least=0), self._recipe.consumer),
        )
        if whole("step", step, least=0) >= steps:
            raise ConfigError(f"step must be from 0 to {steps - 1} in epoch {epoch} of consumer {consumer}, not {step}")
        return self.plan.indices(epoch, consumer, step, 1)[0]

    def batch(self, epoch: int, step: int) -> Any:
        """The batch, in the host's memory.

        Raises:
            ConfigError: if there is no such batch.
            DataError, LayoutError, NoRoom: what a worker would have reported; the cause is the dataset's own error,
                with the frames that a debugger shows.
        """
        self.indices(epoch, step)
        self._pool.restart(Position(epoch, step))
        delivery = self._pool.take()
        if isinstance(delivery, Failed):
            error, raised = self._pool.error_of(delivery), self._pool.raised
            self._pool.raised = None
            raise error from raised
        return landed(delivery, self._stage, looks=False)
