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
_POWERS = np.uint64(1) << np.arange(64, dtype=np.uint64)


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
    if size <= ranked:
        return _ranked(places, size, keys)
    return _walked(places, size, (size - 1).bit_length(), keys)


def permute_each(places: U64, sizes: U64, keys: U64, ranked: int = RANKED) -> U64:
    """The same where each place has a size as well as a key, all at once: what `permute` gives of each by itself.

    Args:
        places: Each below its size.
        sizes: At least 1. Neighbours with equal keys have equal sizes.
        keys: One for each place.
        ranked: See `permute`.

    Example:
        >>> places, sizes = np.array([0, 1, 0, 1, 2], np.uint64), np.array([2, 2, 3, 3, 3], np.uint64)
        >>> values = permute_each(places, sizes, keys=np.array([7, 7, 8, 8, 8], np.uint64))
        >>> sorted(values[:2].tolist()), sorted(values[2:].tolist())
        ([0, 1], [0, 1, 2])
    """
    values = np.empty_like(places)
    # Rounds are the same for all sizes between two powers of two.
    kinds = np.where(sizes <= ranked, 0, np.searchsorted(_POWERS, sizes))
    for bits in np.flatnonzero(np.bincount(kinds)).tolist():
        here = np.flatnonzero(kinds == bits)
        given = places[here], sizes[here]
        values[here] = _walked(*given, bits, keys[here]) if bits else _ranked(*given, keys[here])
    return values


def _by_keys(keys: U64, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each stretch of equal keys begins, and which stretch each place is of."""
    begins = np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1))
    return begins, np.repeat(np.arange(begins.size), np.diff(begins, append=count))


def _ranked(places: U64, size: int | U64, keys: U64) -> U64:
    begins, which = _by_keys(keys, places.size)
    widest = int(np.max(size))
    if begins.size > 1 and begins.size * widest > RANKED_WORDS:
        half = places.size // 2
        halves = (slice(None, half), slice(half, None))
        sizes = [size[here] if isinstance(size, np.ndarray) else size for here in halves]
        return np.concatenate([_ranked(places[here], of, keys[here]) for here, of in zip(halves, sizes, strict=True)])
    ladder = np.arange(1, widest + 1, dtype=np.uint64) * GOLDEN
    words = scramble(scramble(keys[begins])[:, None] + ladder)
    if isinstance(size, np.ndarray):  # of smaller ones, what is behind their end ranks last
        words[np.arange(widest) >= size[begins, None]] = WORD
    table = np.argsort(words, axis=1).astype(np.uint64)
    return table[which, places]


def _walked(places: U64, size: int | U64, bits: int, keys: U64) -> U64:
    begins, which = _by_keys(keys, places.size)
    ladder = np.arange(1, ROUNDS + 1, dtype=np.uint64) * GOLDEN
    words = scramble(ladder[:, None] + scramble(keys[begins]))
    factors, terms = words | np.uint64(1), words >> np.uint64(32)
    if begins.size > 1:
        factors, terms = factors[:, which], terms[:, which]
    values = _run(places.copy(), bits, factors, terms)
    outside = np.flatnonzero(values >= size)
    while outside.size:
        each = outside if begins.size > 1 else slice(None)
        again = _run(values[outside], bits, factors[:, each], terms[:, each])
        values[outside] = again
        outside = outside[again >= (size[outside] if isinstance(size, np.ndarray) else size)]
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
