"""How a frame lies in the bytes of a connection. Pure.

    head, 24 bytes: magic u16 | kind u8 | reserved u8 | meta_nbytes u32 | seq u64 | bulk_nbytes u64     little endian
    meta            what is said, by the schema of its kind
    bulk            bytes of arrays, as they lie in memory

Whoever receives says how long each part may be; a head that claims more is refused before anything is made for it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from swift_loader.errors import ProtocolError

MAGIC = 0x5753
HEAD = struct.Struct("<HBBIQQ")

(HELLO, WELCOME, REFUSED, BEAT, BYE) = range(1, 6)
"""Of every connection."""
(BEGIN, GOT, BATCH, END, FAILURE) = range(16, 21)
"""Of streams: the client begins an epoch, has received; the server sends a batch, ends an epoch, could not go on."""
(ORDERS, CANCEL, PARCEL, VOID, FAILED, NOTE, LEAVING, CAUTION) = range(32, 40)
"""Of loaders."""
(LENT, COPIED, WHOLE) = range(40, 43)
"""Of loaders on one machine: a parcel whose bytes lie in a file that comes along; they were copied out of it; and they
were what they are until then."""
_KINDS = {*range(1, 6), *range(16, 21), *range(32, 43)}

LARGEST = (1 << 64) - 1


class Head(NamedTuple):
    """What a frame is, and how long."""

    kind: int
    meta_nbytes: int
    seq: int
    bulk_nbytes: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the parts of a frame may be."""

    meta_nbytes: int
    bulk_nbytes: int


STRANGER = Limits(4096, 0)
"""Of somebody who has said nothing yet."""
TALK = Limits(128 * 1024, 0)
"""Of somebody who sends no arrays."""


def write_head(kind: int, meta_nbytes: int = 0, seq: int = 0, bulk_nbytes: int = 0) -> bytes:
    """The head of a frame."""
    return HEAD.pack(MAGIC, kind, 0, meta_nbytes, seq, bulk_nbytes)


def read_head(data: bytes | bytearray | memoryview, limits: Limits) -> Head:
    """The head that the first bytes of a frame are.

    Raises:
        ProtocolError: if they are none, or the frame would be longer than allowed.
    """
    magic, kind, reserved, meta_nbytes, seq, bulk_nbytes = HEAD.unpack_from(data)
    if magic != MAGIC or kind not in _KINDS or reserved:
        raise ProtocolError(f"no frame begins with {bytes(data[: HEAD.size]).hex()}")
    if meta_nbytes > limits.meta_nbytes or bulk_nbytes > limits.bulk_nbytes:
        raise ProtocolError(
            f"a frame of kind {kind} claims {meta_nbytes:,} and {bulk_nbytes:,} bytes, where {limits.meta_nbytes:,} "
            f"and {limits.bulk_nbytes:,} are allowed"
        )
    return Head(kind, meta_nbytes, seq, bulk_nbytes)


def acknowledged_together(hwm: int) -> int:
    """Of how many batches a stream's client says at once that it has them: each time wakes the server."""
    return max(1, hwm // 3)
