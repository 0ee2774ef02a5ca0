"""What a rank takes in an epoch, one unit after the other: batches of a plan, or the samples of these. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.plan.plan import EpochPlan


class Units:
    """Of one plan.

    Args:
        plan: Whose steps are taken.
        is_single: Each sample is a unit. All ranks have as many: one that has fewer begins again at its first.
    """

    def __init__(self, plan: EpochPlan, *, is_single: bool) -> None:
        self.plan = plan
        self._is_single = is_single
        self._last: tuple[tuple[int, int, int], list[int]] = ((-1, -1, -1), [])

    def count(self, rank: int) -> int:
        """How many a rank has."""
        if not self._is_single:
            return self.plan.step_count(0, rank)
        return self.plan.samples_of(0)  # the first has most

    def step_of(self, epoch: int, unit: int, rank: int) -> tuple[int, int]:
        """The plan's epoch and step in which one is."""
        if self._is_single:
            unit = unit % max(1, self.plan.samples_of(rank)) // self.plan.batch_size
        return epoch, unit

    def at(self, epoch: int, unit: int, rank: int) -> list[int]:
        """The samples of one."""
        if not self._is_single:
            return self.plan.indices(epoch, rank, unit, 1)[0]
        own = self.plan.samples_of(rank)
        if not own:
            return [unit % self.plan.sample_count]
        step, place = divmod(unit % own, self.plan.batch_size)
        if self._last[0] != (epoch, rank, step):
            self._last = ((epoch, rank, step), self.plan.indices(epoch, rank, step, 1)[0])
        return [self._last[1][place]]
