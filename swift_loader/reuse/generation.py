"""Which making of a sample an epoch uses: named by the first epoch that it is for. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Generations:
    """How long samples are used.

    Args:
        frequency: Epochs for which a sample is used before it is made anew; `math.inf` for ever.
        spread: Whether in each epoch an equal part of the samples is made anew, and not all in one.
    """

    frequency: float = math.inf
    spread: bool = False

    def made_for(self, epoch: int, index: int) -> int:
        """The first epoch of the generation of ``index`` that ``epoch`` uses."""
        if math.isinf(self.frequency):
            return 0
        every = int(self.frequency)
        return max(0, epoch - (epoch + (index if self.spread else 0)) % every)

    def all_made_for(self, epoch: int, indices: Any) -> Any:
        """`made_for` of many indices: one number where it is the same for all, else an array."""
        if math.isinf(self.frequency) or not self.spread:
            return self.made_for(epoch, 0)
        return np.maximum(0, epoch - (epoch + indices) % int(self.frequency))

    def last_of(self, made_for: int) -> int | None:
        """The last epoch that uses what was made for that one; None for ever."""
        return None if math.isinf(self.frequency) else made_for + int(self.frequency) - 1

    @property
    def is_common(self) -> bool:
        """Whether all samples are of the same generation at any time."""
        return not self.spread or math.isinf(self.frequency)
