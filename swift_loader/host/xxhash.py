"""The checksum of what is kept and of what lies in shards: xxh3, which costs a tenth of copying the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    from xxhash import xxh3_64, xxh3_64_intdigest, xxh3_128, xxh3_128_digest
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


def digest_of_parts(parts: Sequence[Any], seed: int) -> int:
    """Of bytes that lie in several pieces; as if they lay one behind the other."""
    state = xxh3_64(seed=seed)
    for part in parts:
        state.update(part)
    return state.intdigest()
