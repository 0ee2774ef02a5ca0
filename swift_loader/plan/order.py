"""The order of one shuffled epoch: which sample stands at which place. It knows nothing of consumers and batches.

The index space, rotated by a random offset, is cut into windows; the windows are permuted; samples are permuted within
groups of `mix` windows that became neighbours. The last window may be shorter. It takes a random slot among the
permuted ones, and the places behind it are counted as if it were whole: `missing` is what it lacks.

    rotated index space   | w0    | w1    | w2    | w3    | w4  |      window 4, the last, is short
    slots                 | w2    | w4  | w0    | w3    | w1    |      it came to slot 1
    groups (mix = 2)      |   samples   |    samples    | ...   |      permuted within each
"""

from __future__ import annotations

import numpy as np

from swift_loader.plan.permute import U64, WORD, permute
from swift_loader.plan.seeding import derive

_ROTATION, _SHORT_SLOT, _WINDOWS, _GROUPS, _WHOLE = range(5)


def shuffled(places: U64, sample_count: int, window: int, mix: int, key: int) -> U64:
    """Give the indices of the samples that stand at these places of an epoch.

    Args:
        places: Places in [0, sample_count).
        sample_count: Length of the dataset.
        window: Neighbouring samples per window; 0 is one permutation of the whole epoch.
        mix: Windows whose samples are permuted together.
        key: The epoch's key, 128 bits.

    Example:
        >>> sorted(shuffled(np.arange(10, dtype=np.uint64), 10, window=3, mix=2, key=1).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    group_size = window * mix
    if not 0 < group_size < sample_count:
        return permute(places, sample_count, _word(key, _WHOLE))
    window_count = -(-sample_count // window)
    missing = window_count * window - sample_count
    short = _below(window_count, key, _SHORT_SLOT)
    short_group, last_group = short // mix, (window_count - 1) // mix

    behind = places >= min((short_group + 1) * group_size - missing, sample_count)
    places = places + behind * np.uint64(missing)
    group = places // group_size
    inner = places - group * group_size
    mixed = permute(inner, group_size, group + _word(key, _GROUPS))
    for odd in {short_group, last_group}:  # the two groups that may be smaller
        size = min(group_size, window_count * window - odd * group_size) - (missing if odd == short_group else 0)
        here = np.flatnonzero(group == odd)
        if here.size and size < group_size:
            mixed[here] = permute(inner[here], size, _word(key, _GROUPS) + np.uint64(odd))
    hole = (short % mix + 1) * window - missing
    mixed += ((group == short_group) & (mixed >= hole)) * np.uint64(missing)

    places = group * group_size + mixed
    slot = places // window
    others = np.minimum(slot - (slot > short), window_count - 2)
    chosen = permute(others, window_count - 1, _word(key, _WINDOWS))
    chosen[slot == short] = window_count - 1
    return (chosen * window + (places - slot * window) + _below(sample_count, key, _ROTATION)) % sample_count


def _word(key: int, purpose: int) -> U64:
    return np.array([derive(key, purpose) & WORD], np.uint64)


def _below(limit: int, key: int, purpose: int) -> int:
    return derive(key, purpose) * limit >> 128
