"""How the index of a store lies in its file, and how its header says whose it is.

    0        header: magic, version, arena size, number of the store, samples, what they are of, checksum
    FORMS    what samples look like: (size, checksum, pickle) one behind the other
    CLAIMS   a word for each arena of the data file: how often it was claimed
    ENTRIES  64 bytes for each sample

The parts have fixed places; what is not used of them is a hole in the file. The data file begins with `DATA_MAGIC` and
the store's number.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, fields
from typing import Self

from swift_loader.host.xxhash import digest_of
from swift_loader.reuse import entry

MAGIC, DATA_MAGIC, VERSION = b"SWCACHE\n", b"SWKEPT\n\0", 2
HEADER_NBYTES = 4096
FORMS, FORMS_NBYTES = HEADER_NBYTES, 256 * 1024
CLAIMS, MOST_ARENAS = FORMS + FORMS_NBYTES, 1 << 20
ENTRIES = CLAIMS + 8 * MOST_ARENAS
#: Where records begin in the data file.
RECORDS = 4096

# Places of the locks, far behind any byte of the file.
LOCK_SAMPLE, LOCK_ARENA, LOCK_EPOCH, LOCK_ROOM, LOCK_FORMS, LOCK_USE, LOCK_OPEN = (n << 52 for n in range(1, 8))

_HEAD = struct.Struct("<8sIQQQI")
_DATA_HEAD = struct.Struct("<8sQ")
_CHECK = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Origin:
    """What the samples of a store are of: they are read again only where all of it is the same."""

    dataset: str
    """The dataset's class, by module and name."""
    arguments: str
    """A digest of what it is built with."""
    version: str
    """The user's own word for it."""
    samples: int = 0

    def differs_from(self, other: Self) -> str:
        """What is another, in words."""
        pairs = ((field.name, getattr(other, field.name), getattr(self, field.name)) for field in fields(self))
        return ", ".join(
            "arguments are others" if name == "arguments" else f"{name} was {was!r} and is {now!r}"
            for name, was, now in pairs
            if was != now
        )


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says."""

    store_id: int
    """Drawn when the store is made; odd."""
    arena_nbytes: int
    origin: Origin

    def written(self) -> bytes:
        """As it lies in the file."""
        text = json.dumps(asdict(self.origin)).encode()
        if len(text) > HEADER_NBYTES - _HEAD.size - _CHECK.size:
            raise OSError(f"what the cache is of takes {len(text):,} bytes to say: give a shorter version")
        head = _HEAD.pack(MAGIC, VERSION, self.arena_nbytes, self.store_id, self.origin.samples, len(text))
        body = (head + text).ljust(HEADER_NBYTES - _CHECK.size, b"\0")
        return body + _CHECK.pack(digest_of(body, 0))

    @classmethod
    def read(cls, raw: bytes) -> Self | None:
        """The header in those bytes; None if there is none that is whole and of this version."""
        if len(raw) != HEADER_NBYTES:
            return None
        body = raw[: -_CHECK.size]
        magic, version, arena_nbytes, store_id, _, length = _HEAD.unpack_from(body)
        if magic != MAGIC or version != VERSION or digest_of(body, 0) != _CHECK.unpack_from(raw, len(body))[0]:
            return None
        return cls(store_id, arena_nbytes, Origin(**json.loads(body[_HEAD.size : _HEAD.size + length])))

    def data_head(self) -> bytes:
        """What the data file begins with."""
        return _DATA_HEAD.pack(DATA_MAGIC, self.store_id)

    @property
    def index_nbytes(self) -> int:
        """The length of the index."""
        return place_of(self.origin.samples)


def place_of(index: int) -> int:
    """Where the entry of a sample lies."""
    return ENTRIES + entry.NBYTES * index
