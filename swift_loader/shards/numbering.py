"""Which samples indices mean, as Python has it: those below 0 count from the end, and others there are not."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def place(index: SupportsIndex, count: int) -> int:
    """The place of one sample among ``count``.

    Raises:
        IndexError: if there is none.
    """
    number = operator.index(index)
    if not -count <= number < count:
        raise IndexError(f"there are {count:,} samples, and no sample {number}")
    return number % count


def places(indices: Sequence[int], count: int) -> NDArray[np.int64]:
    """The places of several samples among ``count``.

    Raises:
        IndexError: if one of them is not there.
    """
    wanted = np.asarray(indices, np.int64)
    if wanted.size and int(wanted.view(np.uint64).max()) >= count:  # what is below 0 is large so
        outside = wanted[(wanted < -count) | (wanted >= count)]
        if outside.size:
            raise IndexError(f"there are {count:,} samples, and no sample {outside[0]}")
        wanted = wanted % count
    return wanted
