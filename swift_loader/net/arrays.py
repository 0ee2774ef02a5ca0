"""What is said of an array whose bytes come behind, and where in those it lies. Pure.

A sender describes each by type, shape and order; places and sizes are computed from that by both ends and never sent,
so none can be claimed that is not so.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from swift_loader.errors import ProtocolError

#: Each array begins at a multiple of this: what numpy, torch and vector instructions like.
ALIGNMENT = 64
MOST_DIMENSIONS = 32
#: Booleans, whole and floating numbers, complex ones, times, and texts of one length. No objects and no records.
_DTYPE = re.compile(r"[|<>](?:b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[mM]8(?:\[\d{0,9}[a-zA-Z]{1,3}\])?|[SU]\d{1,9})")


class Described(NamedTuple):
    """One array."""

    dtype: str
    shape: tuple[int, ...]
    is_fortran: bool


class Placed(NamedTuple):
    """Where one array lies."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: str
    start: int
    nbytes: int


def described(array: np.ndarray[Any, Any]) -> Described | None:
    """What is said of it; None where it has a type that is not sent."""
    is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return Described(array.dtype.str, array.shape, is_fortran) if _DTYPE.fullmatch(array.dtype.str) else None


def aligned(nbytes: int) -> int:
    """The next multiple."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def places(arrays: Iterable[Described]) -> tuple[Placed, ...]:
    """Where arrays lie that follow each other.

    Raises:
        ProtocolError: if one of them cannot be.
    """
    return _places(tuple(arrays))


@functools.lru_cache(maxsize=64)
def _places(arrays: tuple[Described, ...]) -> tuple[Placed, ...]:
    found, end = [], 0
    for array in arrays:
        placed = _placed(array, aligned(end))
        end = placed.start + placed.nbytes
        found.append(placed)
    return tuple(found)


def total_nbytes(placed: Sequence[Placed]) -> int:
    """Of all of them, with what lies between."""
    return placed[-1].start + placed[-1].nbytes if placed else 0


def taken(arrays: Iterable[Described], bulk: memoryview) -> list[np.ndarray[Any, Any]]:
    """The arrays that lie in ``bulk``: views of it, no copies.

    Raises:
        ProtocolError: if they do not fill it.
    """
    placed = places(arrays)
    if total_nbytes(placed) != bulk.nbytes:
        raise ProtocolError(f"arrays of {total_nbytes(placed):,} bytes were announced, and {bulk.nbytes:,} came")
    return [
        np.ndarray(one.shape, one.dtype, bulk, one.start, order="F" if one.order == "F" else "C")
        if one.nbytes
        else np.empty(one.shape, one.dtype)
        for one in placed
    ]


def _placed(array: Described, start: int) -> Placed:
    if not _DTYPE.fullmatch(array.dtype):
        raise ProtocolError(f"an array of type {array.dtype[:40]!r}, which is not sent")
    if len(array.shape) > MOST_DIMENSIONS or any(length < 0 for length in array.shape):
        raise ProtocolError(f"an array of the shape {array.shape[:40]}, which there is not")
    try:
        dtype = np.dtype(array.dtype)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"an array of type {array.dtype[:40]!r}, which there is not") from error
    nbytes = math.prod(array.shape) * dtype.itemsize
    # Where one side is 0 others may be anything, and still overflow what numpy counts with.
    if math.prod(max(length, 1) for length in array.shape) * max(dtype.itemsize, 1) > np.iinfo(np.int64).max:
        raise ProtocolError(f"an array of the shape {array.shape[:40]}, which no memory holds")
    return Placed(dtype, array.shape, "F" if array.is_fortran else "C", start, nbytes)
