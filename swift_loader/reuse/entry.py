"""Where one sample lies, in 64 bytes that check themselves.

    index, made_for, offset, nbytes, capacity, form, digest, check        eight little-endian words

``made_for`` is the first epoch that the sample was made for: it names the sample's generation. ``check`` is a sum of
odd multiples of the other words, so that no flipped bit goes unseen, with the store's own number in it, so that an
entry of another store is none of this one. An entry is written at once; one that is half written does not check.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Words: TypeAlias = npt.NDArray[np.uint64]

NBYTES = 64
#: Places of the words.
INDEX, MADE_FOR, OFFSET, SIZE, CAPACITY, FORM, DIGEST, CHECK = range(8)

_WORDS = struct.Struct("<8Q")
_MASK = (1 << 64) - 1
# Digits of e, made odd.
_ODD = (
    0xB7E151628AED2A6B, 0xBF7158809CF4F3C7, 0x62E7160F38B4DA57, 0xA784D9045190CFEF,
    0x324E7738926CFBE5, 0xF4BF8D8D8C31D763, 0xDA06C80ABB1185EB,
)  # fmt: skip
_ODDS = np.array(_ODD, np.uint64)
_SPREAD = 0x9E3779B97F4A7C15


class Entry(NamedTuple):
    """Where a sample lies, and what its bytes are."""

    number: int
    made_for: int
    """The first epoch that this generation of the sample is for."""
    offset: int
    nbytes: int
    capacity: int
    """The room that it has there."""
    form: int
    """What the bytes are: the number of a form, or 0 for a pickle."""
    digest: int


def pack(entry: Entry, store_id: int) -> bytes:
    """The entry as it is written."""
    total = sum(word * odd for word, odd in zip(entry, _ODD, strict=True))
    return _WORDS.pack(*entry, _check(total, store_id))


def unpack(raw: Any, index: int, store_id: int) -> Entry | None:
    """The entry of ``index`` in those bytes; None if there is none that is whole."""
    *words, check = _WORDS.unpack(raw)
    entry = Entry._make(words)
    if not entry.capacity or entry.number != index:
        return None
    a, b, c, d, e, f, g = _ODD
    total = (
        entry.number * a + entry.made_for * b + entry.offset * c + entry.nbytes * d
        + entry.capacity * e + entry.form * f + entry.digest * g
    )  # fmt: skip
    return entry if _check(total, store_id) == check else None


def sound(words: Words, store_id: int) -> npt.NDArray[np.bool_]:
    """Which of many entries, a row of words each, are whole."""
    total = (words[:, :CHECK] * _ODDS).sum(axis=1, dtype=np.uint64)
    total += np.uint64(store_id)
    total ^= total >> np.uint64(29)
    total *= np.uint64(_SPREAD)
    whole: npt.NDArray[np.bool_] = (total == words[:, CHECK]) & (words[:, CAPACITY] != 0)
    return whole


def seed_of(index: int, made_for: int, store_id: int) -> int:
    """The key of the payload's digest: bytes of another sample, generation or store do not fit."""
    return (index * _ODD[0] + made_for * _ODD[1] + store_id) & _MASK


def seeds_of(words: Words, store_id: int) -> list[int]:
    """`seed_of` for many entries."""
    seeds = words[:, INDEX] * _ODDS[0] + words[:, MADE_FOR] * _ODDS[1] + np.uint64(store_id)
    listed: list[int] = seeds.tolist()
    return listed


def _check(total: int, store_id: int) -> int:
    word = (total + store_id) & _MASK
    return (word ^ (word >> 29)) * _SPREAD & _MASK
