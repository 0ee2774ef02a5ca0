"""What comes next: the indices of a step, and of those that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan

#: A plan is asked for about so many samples at once: that costs it little more than one batch.
_SAMPLES = 4096
#: So many blocks are kept. Whoever looks ahead is in the one after the one at hand.
_BLOCKS = 2


class Ahead:
    """One consumer's view of a plan, for one who goes through it mostly in order. For one thread.

    Args:
        plan: Which samples make which batch.
        consumer: Whose batches.
        batch_size: About how many samples a batch has.

    Example:
        >>> from swift_loader.plan.plan import EpochPlan
        >>> ahead = Ahead(EpochPlan(sample_count=7, batch_size=2, shuffle=False, even="none"), consumer=0, batch_size=2)
        >>> ahead.indices(epoch=0, step=1)
        [2, 3]
        >>> ahead.following(epoch=0, step=2, count=9)
        [[4, 5], [6]]
    """

    __slots__ = ("_blocks", "consumer", "plan", "steps")

    def __init__(self, plan: Plan, consumer: int, batch_size: int) -> None:
        self.plan = plan
        self.consumer = consumer
        self.steps = max(1, _SAMPLES // batch_size)
        """A block has so many steps."""
        self._blocks: dict[tuple[int, int], list[list[int]]] = {}

    def indices(self, epoch: int, step: int) -> list[int]:
        """The batch of a step."""
        number, place = divmod(step, self.steps)
        block = self._blocks.get((epoch, number))
        return (self._asked(epoch, number) if block is None else block)[place]

    def following(self, epoch: int, step: int, count: int) -> list[list[int]]:
        """The batches of ``count`` steps from this one on, fewer where the epoch ends."""
        end = min(step + count, self.plan.step_count(epoch, self.consumer))
        return [self.indices(epoch, one) for one in range(step, end)]

    def _asked(self, epoch: int, number: int) -> list[list[int]]:
        first = number * self.steps
        count = min(self.steps, self.plan.step_count(epoch, self.consumer) - first)
        if len(self._blocks) >= _BLOCKS:
            self._blocks.pop(next(iter(self._blocks)))
        block = self._blocks[epoch, number] = self.plan.indices(epoch, self.consumer, first, count)
        return block
