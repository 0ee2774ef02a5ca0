"""The checksum of what is kept and of what lies in shards: xxh3, which costs a tenth of copying the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

try:
    from xxhash import xxh3_64, xxh3_64_digest, xxh3_64_intdigest, xxh3_128, xxh3_128_digest
except ImportError as error:
    raise ImportError(
        "what is read is checked with xxhash, which is not installed: pip install 'swift-loader[shards]'", name="xxhash"
    ) from error

digest_of = xxh3_64_intdigest
"""``digest_of(data, seed)``: of bytes that lie in one piece."""

wide_digest_of = xxh3_128_digest
"""The same with 128 bits, for much that is digested once: 16 bytes, in the order in which the number is written."""
WideDigest = xxh3_128
"""Of what comes in pieces: ``update(piece)``, and ``digest()`` at the end."""


SMALL_NBYTES = 4096
"""Up to here many are gathered and digested together."""


def digest_of_parts(parts: Sequence[Any], seed: int) -> int:
    """Of bytes that lie in several pieces; as if they lay one behind the other."""
    state = xxh3_64(seed=seed)
    for part in parts:
        state.update(part)
    return state.intdigest()


def digests_of_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Of each row of an array of bytes that lies in one piece."""
    if rows.shape[1] > SMALL_NBYTES:
        return np.fromiter(map(digest_of, rows), np.uint64, len(rows))
    return digests_of_items(rows.view(f"V{rows.shape[1]}")[:, 0])


def digests_of_items(items: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Of each item of an array, whatever it is; they are small."""
    # A copy of each costs less than an array that is a view of it, and eight bytes less than a number.
    return np.frombuffer(b"".join(map(xxh3_64_digest, items.tolist())), ">u8")
