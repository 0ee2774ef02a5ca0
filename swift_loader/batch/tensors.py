"""torch's tensors as those see them who write rows: which bytes they are, and how these get to their row.

Nothing here imports torch: a tensor can only be there if whoever made it has brought torch.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np

#: torch's dtypes that numpy lacks, and the integers that carry their bits.
BITS_OF = {
    "bfloat16": "int16",
    "float4_e2m1fn_x2": "uint8",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}
#: Rows from this size on are copied without the interpreter's lock; for smaller ones letting go of it costs more.
_LARGE_NBYTES = 64 * 1024

_POINTER = ctypes.c_void_p
#: As `ctypes.memmove`, with the lock held, in half the time: a number is quickest passed as if it were a pointer.
_move_small = ctypes.PYFUNCTYPE(None, _POINTER, _POINTER, _POINTER)(ctypes.cast(ctypes.memmove, _POINTER).value or 0)


def mover(nbytes: int) -> Any:
    """What copies rows of that size: ``move(to, from, nbytes)``, with addresses."""
    return ctypes.memmove if nbytes >= _LARGE_NBYTES else _move_small


def dtype_of(stored: str, viewed_as: str) -> Any:
    """The dtype of torch's that is stored so; None where torch lacks it, or is not there."""
    return getattr(sys.modules.get("torch"), viewed_as or stored, None)


@cache
def stored_as(dtype: Any) -> tuple[str, str]:
    """What tensors of that dtype are stored as, by numpy's name (empty: nothing); and the name they are viewed as."""
    name = str(dtype).removeprefix("torch.")
    if bits := BITS_OF.get(name):
        return bits, name
    try:
        return np.dtype(name).name, ""
    except TypeError:
        return "", name


def as_array(leaf: Any) -> Any:
    """A numpy view of a tensor, of what it is stored as; any other leaf as it is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(leaf, torch.Tensor):
        return leaf
    plain = leaf.detach().resolve_conj().resolve_neg()
    bits, viewed_as = stored_as(plain.dtype)
    return (plain.view(getattr(torch, bits)) if viewed_as else plain).numpy()
