"""What the numbers of one leaf are together, where samples bring them in several dtypes: as torch promotes them.

But nothing is rounded: an integer that the floats cannot hold is an error, and Python's numbers have 64 bits wherever
they stand among others. Dtypes go by torch's names, which are numpy's where numpy has them. torch is asked only where
bfloat16 comes in, which only torch can have brought.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_WIDE_UNSIGNED = ("uint16", "uint32", "uint64")
_INTS = ("bool", "uint8", "int8", "int16", "int32", "int64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")
#: So many binary digits of an integer a float holds.
_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "complex64": 24, "complex128": 53}


class Inexact(Exception):
    """An integer that the floats beside it cannot hold."""

    def __init__(self, row: int, value: int, dtype: str) -> None:
        super().__init__(row, value, dtype)
        self.row, self.value, self.dtype = row, value, dtype


def promoted(one: str, other: str) -> str | None:
    """The dtype of both together; None where torch knows none.

    Example:
        >>> promoted("int64", "float32"), promoted("uint8", "int8"), promoted("uint16", "int32")
        ('float32', 'int16', None)
    """
    if one == other:
        return one
    for kind in (_INTS, _FLOATS, _COMPLEX):
        if one in kind and other in kind:
            return _of_one_kind(kind, one, other)
    for kind, lower in ((_COMPLEX, (*_FLOATS, *_INTS)), (_FLOATS, (*_INTS, *_WIDE_UNSIGNED))):
        for high, low in ((one, other), (other, one)):
            if high in kind and low in lower:
                return "complex128" if kind is _COMPLEX and low == "float64" else high
    return None


def _of_one_kind(kind: tuple[str, ...], one: str, other: str) -> str:
    if {one, other} == {"float16", "bfloat16"}:
        return "float32"
    if {one, other} == {"uint8", "int8"}:
        return "int16"
    return max(one, other, key=kind.index)


def cast(array: Any, source: str, target: str) -> Any:
    """Values of the dtype ``source`` as such of ``target``, to which they were promoted; bfloat16 goes as its bits.

    Raises:
        Inexact: if one of them would be rounded; its row is the first index.
    """
    if source == target:
        return array
    if target in _DIGITS and (source in _INTS or source in _WIDE_UNSIGNED):
        _refuse_to_round(array, target)
    if "bfloat16" not in (source, target):
        return array.astype(target)
    torch = sys.modules["torch"]
    tensor = torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
    if source == "bfloat16":
        tensor = tensor.view(torch.bfloat16)
    made = tensor.to(getattr(torch, target))
    return (made.view(torch.int16) if target == "bfloat16" else made).numpy()


def _refuse_to_round(array: Any, target: str) -> None:
    # The digits between an integer's highest and lowest one bit. The least int64 has no positive, but the right bits.
    bits = np.abs(array).astype(np.uint64) if array.dtype.kind == "i" else array.astype(np.uint64)
    lowest = bits & (~bits + np.uint64(1))
    is_rounded = bits // np.maximum(lowest, np.uint64(1)) >= np.uint64(1 << _DIGITS[target])
    if target == "float16":
        is_rounded |= bits > np.uint64(np.finfo(np.float16).max)
    if is_rounded.any():
        place = np.unravel_index(int(np.argmax(is_rounded)), array.shape)
        raise Inexact(int(place[0]) if place else 0, int(array[place]), target)
