"""Where one consumer is in the stream of batches: which epoch, what comes next, what was handed out last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.position import Position, State

if TYPE_CHECKING:
    import torch

    from swift_loader.plan.plan import Plan


class Course:
    """That of one runtime."""

    epoch = 0
    """The epoch that is iterated, or was last."""
    iteration = 0
    """The number of the iteration that goes on. Not the iteration itself: it holds the loader, which would then be in a
    cycle, and a forgotten one would be seen late or never."""
    step_count = 0
    """Of that epoch."""

    def __init__(self, consumer: int) -> None:
        self._consumer = consumer
        self.position = Position()
        """What is handed out next, if the iteration goes on."""
        self.begins = State.of_epoch()
        """Where the next iteration begins."""
        self._last: tuple[int, int, int] | None = None
        """Epoch, step and rows of what was handed out last."""

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration."""
        return self.begins.position.epoch

    @property
    def is_over(self) -> bool:
        """Whether all batches of the epoch that is iterated were handed out."""
        return self.position.epoch != self.epoch

    def begin_epoch(self, plan: Plan) -> int:
        """An iteration begins where the position is; gives back how many batches it has."""
        self.epoch = self.position.epoch
        self.begins = State.of_epoch(self.epoch + 1)
        self.step_count = plan.step_count(self.epoch, self._consumer)
        return self.position.left(self.step_count)

    def took(self, step: int) -> None:
        """A delivery was taken: a batch, or an error in its place."""
        self.position.took(step, self.step_count)

    def handed(self, epoch: int, step: int, rows: int) -> None:
        """A batch was handed out."""
        self._last = epoch, step, rows

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration begin there; the one that goes on is not disturbed."""
        self.begins = self.begins.turned_to(epoch)

    def resume(self, state: State) -> None:
        """Has the next iteration begin where the state was taken; the one that goes on ends."""
        self.iteration += 1
        self.begins = replace(state, position=state.position.copy())
        self.epoch = max(0, state.position.epoch - (not state.position.is_inside))

    def mask(self, plan: Plan | None) -> torch.Tensor:
        """Which rows of the batch handed out last are not repeated."""
        import torch  # noqa: PLC0415 - importing the package must not import torch

        if self._last is None:
            raise ConfigError("last_batch_mask tells about the batch handed out last, and none was")
        epoch, step, rows = self._last
        mask = plan.mask(epoch, self._consumer, step) if isinstance(plan, EpochPlan) else None
        return torch.ones(rows, dtype=torch.bool) if mask is None else torch.tensor(mask)
