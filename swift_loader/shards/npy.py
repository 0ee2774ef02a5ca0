r"""What the head of an array in numpy's own format tells. Pure.

    "\x93NUMPY" | u8 version (1, 2, 3), u8 0 | u16 or (2, 3) u32 size of the text | text: a dict as Python writes it

The text is read by its form, as numpy and all others write it, and never as Python: what numpy does with a damaged one
ends in errors and warnings of many kinds.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from swift_loader.errors import ShardError
from swift_loader.shards.fields import Field

_MAGIC = b"\x93NUMPY"
_LENGTH_NBYTES = {1: 2, 2: 4, 3: 4}
_TEXT = re.compile(
    rb"\{ ?'descr': ?'([<>|][a-z][0-9]{1,2})', ?'fortran_order': ?False, ?'shape': ?\(([0-9L, ]{0,200})\),? ?\}\s*"
)
_SIDE = re.compile(rb"([0-9]{1,15})L?")


class Head(NamedTuple):
    """An array's."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    """Of the head: there the numbers begin."""


def head_of(data: bytes) -> Head | None:
    """The head that ``data`` begins with; None if there is none, or the array is not plain numbers in C's order."""
    length_nbytes = _LENGTH_NBYTES.get(data[6]) if data[:6] == _MAGIC and len(data) > 8 and not data[7] else None
    if length_nbytes is None:
        return None
    begin = 8 + length_nbytes
    end = begin + int.from_bytes(data[8:begin], "little")
    told = _TEXT.fullmatch(data[begin:end]) if end <= len(data) else None
    if told is None:
        return None
    dtype = told[1].decode()
    sides = [_SIDE.fullmatch(side.strip()) for side in told[2].rstrip(b", ").split(b",")] if told[2].strip() else []
    shape = tuple(int(side[1]) for side in sides if side is not None)
    try:
        Field("x", dtype).check()
    except ShardError:
        return None
    return Head(dtype, shape, end) if len(shape) == len(sides) and 0 not in shape else None
