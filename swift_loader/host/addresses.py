"""The memory of this process by its addresses: what lies in many mappings is gathered in one call.

It checks nothing: whoever asks has seen that there is memory, keeps it there meanwhile, and owns or may read it.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Below there is never anything, and numpy takes an array at 0 for none.
_LEAST = 4096
#: What kernels give to who does not ask for more.
_MOST = 1 << 47
_EVERYTHING = (ctypes.c_ubyte * (_MOST - _LEAST)).from_address(_LEAST)
_BYTES: NDArray[np.uint8] = np.frombuffer(memoryview(_EVERYTHING), np.uint8)
_WORDS: NDArray[np.uint64] = _BYTES.view(np.uint64)


def are_known(addresses: NDArray[np.int64], nbytes: int) -> bool:
    """Whether so many bytes from each of these on are among what can be asked for."""
    return not len(addresses) or (int(addresses.min()) >= _LEAST and int(addresses.max()) <= _MOST - nbytes)


def bytes_at(address: int, nbytes: int) -> NDArray[np.uint8]:
    """A view of what lies there."""
    return _BYTES[address - _LEAST : address - _LEAST + nbytes]


def flags_at(addresses: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The byte at each."""
    return _BYTES.take(addresses - _LEAST)


def words_at(addresses: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The eight bytes at each, which are multiples of eight."""
    return _WORDS.take((addresses - _LEAST) >> 3)


def items_at(addresses: NDArray[np.int64], nbytes: int) -> NDArray[Any]:
    """A copy of so many bytes from each, as items that numpy knows nothing of."""
    # Items that lie over each other, a byte apart: so each address is an index, whatever is between those asked for.
    items = np.ndarray((_MOST - _LEAST - nbytes + 1,), f"V{nbytes}", _BYTES, strides=(1,))
    return items[addresses - _LEAST]
