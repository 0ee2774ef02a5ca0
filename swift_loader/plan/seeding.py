"""Keys of random streams, each a pure function of what it is for. It knows nothing of the generators they go to.

A key is a sum of odd multiples of its fields, one multiplier for each field and one offset for each purpose, spread
over 128 bits. So each field counts, no field can stand in for another, and a key costs under a microsecond.
"""

from __future__ import annotations

import numpy as np

_MASK = (1 << 128) - 1
# The multipliers are digits of pi, made odd: nothing up the sleeve. The offsets keep the purposes apart.
_SEED = 0x243F6A8885A308D313198A2E03707345
_EPOCH = 0xA4093822299F31D0082EFA98EC4E6C89
_CONSUMER = 0x452821E638D01377BE5466CF34E90C6D
_STEP = 0xC0AC29B7C97C50DD3F84D5B5B5470917
_INDEX = 0x9216D5D98979FB1BD1310BA698DFB5AD
_BATCH_KEY, _SAMPLE_KEY, _ORDER_KEY, _EPOCH_KEY = 1 << 125, 2 << 125, 3 << 125, 4 << 125


def batch_key(seed: int, epoch: int, consumer: int, step: int) -> int:
    """Give the 128-bit key of one batch's random numbers.

    Example:
        >>> batch_key(1, 0, 0, 0) == batch_key(1, 0, 0, 1)
        False
    """
    return _spread(_BATCH_KEY + seed * _SEED + epoch * _EPOCH + consumer * _CONSUMER + step * _STEP)


def sample_key(seed: int, epoch: int, index: int) -> int:
    """Give the 128-bit key of one sample's random numbers: whatever batch, consumer and worker it falls to."""
    return _spread(_SAMPLE_KEY + seed * _SEED + epoch * _EPOCH + index * _INDEX)


def order_key(seed: int, epoch: int) -> int:
    """Give the 128-bit key of an epoch's order."""
    return _spread(_ORDER_KEY + seed * _SEED + epoch * _EPOCH)


def epoch_key(seed: int, epoch: int) -> int:
    """Give the 128-bit key of what a dataset draws when it turns to an epoch: the same for all consumers."""
    return _spread(_EPOCH_KEY + seed * _SEED + epoch * _EPOCH)


def derive(key: int, purpose: int) -> int:
    """Give one of a key's children, 128 bits as well."""
    return _spread(key + (purpose + 1) * _INDEX)


def keyed_generator(key: int) -> np.random.Generator:
    """Make the generator of a key. Keys that differ in one bit give independent streams (Philox)."""
    return np.random.Generator(np.random.Philox(key=key))


def _spread(word: int) -> int:
    word &= _MASK
    word = (word ^ (word >> 67)) * 0xDA942042E4DD58B5C97C50DD3F84D5B5 & _MASK
    word = (word ^ (word >> 61)) * 0x9E3779B97F4A7C15F39CC0605CEDC835 & _MASK
    return word ^ (word >> 64)
