"""A stateless keyed permutation of [0, size), computed for any places of it at once. It knows nothing of epochs.

A small size is ranked by keyed random words, which is a perfect shuffle. A larger one is permuted by rounds, each of
which multiplies by an odd number (low bits reach high ones) and folds the high half onto the low one (high bits reach
low ones). Both can be undone on k bits, so the rounds permute [0, 2**k); a value outside [0, size) goes through them
again until it is inside (cycle walking), which makes that a permutation of [0, size). Memory depends on how many
places are asked for, never on the size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

RANKED = 4096  # the faster way up to here, if most places of a permutation are asked for together
RANKED_AT_LEAST = 256  # below, rounds leave traces that a chi-square test sees
RANKED_WORDS = 1 << 20  # the most that is ranked at once, when neighbouring places all have different keys
ROUNDS = 6
GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1


def scramble(words: U64) -> U64:
    """Spread every bit of each word over all of its 64 bits (the finalizer of splitmix64), in place."""
    words ^= words >> 30
    words *= 0xBF58476D1CE4E5B9
    words ^= words >> 27
    words *= 0x94D049BB133111EB
    words ^= words >> 31
    return words


def permute(places: U64, size: int, keys: U64, ranked: int = RANKED) -> U64:
    """Send each place to its value under the permutation of [0, size) that its key names.

    Args:
        places: Numbers in [0, size), one-dimensional.
        size: How many numbers are permuted; at most 2**63.
        keys: One key for each place, or a single one for all. It is fastest where equal keys are neighbours.
        ranked: The largest size that is ranked, at least RANKED_AT_LEAST. It is part of the key: another way is another
            permutation.

    Returns:
        A new array of numbers in [0, size). Different places with the same key get different numbers.

    Example:
        >>> places = np.arange(5, dtype=np.uint64)
        >>> sorted(permute(places, 5, np.array([7], np.uint64)).tolist())
        [0, 1, 2, 3, 4]
    """
    if size == 1 or not places.size:
        return np.zeros_like(places)
    changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    if size <= ranked and changes.size * size > RANKED_WORDS:
        half = places.size // 2
        halves = (slice(None, half), slice(half, None))
        return np.concatenate([permute(places[here], size, keys[here], ranked) for here in halves])
    keys = scramble(keys[np.concatenate(([0], changes))])
    which = np.repeat(np.arange(keys.size), np.diff(changes, prepend=0, append=places.size))
    return (_ranked if size <= ranked else _walked)(places, size, keys, which)


def _ranked(places: U64, size: int, keys: U64, which: NDArray[np.int64]) -> U64:
    ladder = np.arange(1, size + 1, dtype=np.uint64) * GOLDEN
    table = np.argsort(scramble(keys[:, None] + ladder), axis=1).astype(np.uint64)
    return table[which, places]


def _walked(places: U64, size: int, keys: U64, which: NDArray[np.int64]) -> U64:
    ladder = np.arange(1, ROUNDS + 1, dtype=np.uint64) * GOLDEN
    words = scramble(ladder[:, None] + keys)
    factors, terms = words | np.uint64(1), words >> np.uint64(32)
    if keys.size > 1:
        factors, terms = factors[:, which], terms[:, which]
    bits = (size - 1).bit_length()
    values = _run(places.copy(), bits, factors, terms)
    outside = np.flatnonzero(values >= size)
    while outside.size:
        each = outside if keys.size > 1 else slice(None)
        again = _run(values[outside], bits, factors[:, each], terms[:, each])
        values[outside] = again
        outside = outside[again >= size]
    return values


def _run(values: U64, bits: int, factors: U64, terms: U64) -> U64:
    """Permute [0, 2**bits), in place."""
    inside, fold = (1 << bits) - 1, (bits + 1) // 2
    for factor, term in zip(factors, terms, strict=True):
        values *= factor
        values += term
        values &= inside
        values ^= values >> fold
    return values
