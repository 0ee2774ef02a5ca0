"""The checksum of what is kept: xxh3, 64 bits, which costs a tenth of copying the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xxhash import xxh3_64, xxh3_64_intdigest

digest_of = xxh3_64_intdigest
"""``digest_of(data, seed)``: of bytes that lie in one piece."""


def digest_of_parts(parts: Sequence[Any], seed: int) -> int:
    """Of bytes that lie in several pieces; as if they lay one behind the other."""
    state = xxh3_64(seed=seed)
    for part in parts:
        state.update(part)
    return state.intdigest()
