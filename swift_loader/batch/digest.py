"""What a sample or a batch is made of: a checksum, a size and a description of each leaf.

Equal checksums mean equal types, shapes and bytes. Torch is looked at only where the value brought it along.
"""

from __future__ import annotations

import pickle
import sys
import zlib
from typing import Any

import numpy as np

from swift_loader.batch.tree import describe


def leaves_of(value: Any, name: str = "sample") -> dict[str, Any]:
    """The leaves of nested containers, by the path that one would write in Python."""
    structure = describe(value, name)
    ends = zip(structure.ends(), structure.leaves(value), strict=True)
    return {end.path: leaf for end, leaf in ends}


def checksum(leaf: Any) -> int:
    """Stands for a leaf, in every process of every run."""
    array = _array_of(leaf)
    if array is not None:
        words, raw = array
        return zlib.crc32(raw, zlib.crc32(words.encode()))
    return zlib.crc32(_plain_bytes(leaf), zlib.crc32(type(leaf).__qualname__.encode()))


def checksum_of_all(value: Any) -> int:
    """Stands for a whole sample or batch; the order of a dict's keys does not matter."""
    crc = 0
    for path, leaf in sorted(leaves_of(value, "").items()):
        crc = zlib.crc32(f"{path}:{checksum(leaf)}".encode(), crc)
    return crc


def size_of(leaf: Any) -> int:
    """The bytes of a leaf; those of Python objects are guessed."""
    array = _array_of(leaf)
    if array is not None:
        return int(array[1].nbytes)
    return len(leaf) if isinstance(leaf, str | bytes) else 8


def _is_tensor(leaf: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def _array_of(leaf: Any) -> tuple[str, Any] | None:
    """The type and shape in words, and the bytes; None where there are none to be had."""
    if isinstance(leaf, np.ndarray | np.generic) and not leaf.dtype.hasobject:
        array = np.ascontiguousarray(leaf)
        return f"{array.dtype.str}{leaf.shape}", array.reshape(-1).view(np.uint8)
    if _is_tensor(leaf) and str(leaf.layout) == "torch.strided" and not leaf.is_quantized:
        torch = sys.modules["torch"]
        plain = leaf.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return f"{leaf.dtype}{tuple(leaf.shape)}", plain.view(torch.uint8).numpy()
    return None


def _plain_bytes(leaf: Any) -> bytes:
    if leaf is None or isinstance(leaf, str | bytes | int | float | complex):
        return repr(leaf).encode("utf-8", "surrogatepass")
    if isinstance(leaf, set | frozenset):
        return repr(sorted(map(repr, leaf))).encode("utf-8", "surrogatepass")
    try:
        return pickle.dumps(leaf, protocol=5)
    except Exception:  # noqa: BLE001 - objects of the user's may raise anything here: they are known by their type only
        return b""
