"""How a set is to be made: what decides the bytes of its shards, checked, with a digest of all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypedDict

import numpy as np

from swift_loader.errors import ConfigError
from swift_loader.host.xxhash import wide_digest_of
from swift_loader.plan.permute import WORD, permute
from swift_loader.plan.seeding import derive, order_key
from swift_loader.shards.fields import field_of
from swift_loader.shards.table import MOST_SAMPLES
from swift_loader.shards.writer import Limits

#: Another version of this code may write other bytes for the same samples: then this is another number.
_VERSION = 1
_UNITS = {
    "": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40,
}  # fmt: skip
_USUAL = {"small_members": True, "rows": False}
_LEAST_NBYTES = 8192
_BLOCK = 8192
_ORDER = 9


class Options(TypedDict, total=False):
    """See `Making`."""

    name: str
    fields: Mapping[str, str | int] | None
    key: str | None
    maxsize: float | str
    maxcount: float | None
    shuffle: bool
    seed: int
    part: tuple[int, int] | None
    quality: int
    keep_format: bool
    small_members: bool
    rows: bool


@dataclass(frozen=True, slots=True)
class Making:
    """What decides the bytes of a set's shards, beside the samples themselves.

    Attributes:
        name: What the samples are called; by default that of the dataset's class. Another name is another set.
        fields: Which fields are written, and from where: ``{"jpg": 0, "cls": 1}`` for samples that are tuples,
            ``{"jpg": "image"}`` for dicts. By default all of them.
        key: The field of dicts that is the sample's key. By default ``__key__``, or nine digits of its index.
        maxsize: The most that a shard takes, in bytes or as ``"64MB"``.
        maxcount: The most samples that a shard has.
        shuffle: Whether samples are written in an order that `seed` decides.
        seed: See `shuffle`.
        part: ``(i, n)``: only the i-th of n parts is written; another process, or machine, writes another.
        quality: Of pictures that become JPEG.
        keep_format: Whether pictures from files that are neither JPEG nor PNG keep their bytes.
        small_members: Whether numbers are members of the tar files as well, for other readers; else they stand in the
            tables alone, which spares 1,024 bytes for each.
        rows: Whether samples are written as rows, without a header for each: arrays that are alike, and numbers.
    """

    name: str = ""
    fields: Mapping[str, str | int] | None = None
    key: str | None = None
    maxsize: float | str = "64MB"
    maxcount: float | None = None
    shuffle: bool = True
    seed: int = 0
    part: tuple[int, int] | None = None
    quality: int = 90
    keep_format: bool = False
    small_members: bool = True
    rows: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Making:
        """From a user's arguments.

        Raises:
            ConfigError: if there is one that there is not, or one is wrong.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise ConfigError(f"there is no argument {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        making = cls(**given)
        making.check()
        return making

    def check(self) -> None:
        """Raises `ConfigError` at what cannot be."""
        _ = self.limits
        if self.part is not None:
            given: tuple[Any, ...] = tuple(self.part)
            if len(given) != 2 or not all(map(_is_whole, given)) or not 0 <= given[0] < given[1] <= 1000:
                raise ConfigError(f"part is (i, n) with i from 0 to n - 1, and n at most 1000, not {self.part!r}")
        if not _is_whole(self.seed) or not 0 <= self.seed < 1 << 63:
            raise ConfigError(f"seed is a whole number from 0 to 2**63 - 1, not {self.seed!r}")
        if not _is_whole(self.quality) or not 1 <= self.quality <= 100:
            raise ConfigError(f"quality is a whole number from 1 to 100, not {self.quality!r}")
        if self.fields is not None:
            if not self.fields:
                raise ConfigError("fields names none")
            for name in self.fields:
                field_of(name)

    @property
    def limits(self) -> Limits:
        """When a shard is full."""
        nbytes = _nbytes_of(self.maxsize)
        count: Any = MOST_SAMPLES if self.maxcount is None else self.maxcount
        if isinstance(count, bool) or not isinstance(count, int | float) or not 1 <= count <= MOST_SAMPLES:
            raise ConfigError(f"maxcount is a number from 1 to 2**31, not {self.maxcount!r}")
        return Limits(nbytes, int(count), numbers_alone=not self.small_members, rows=self.rows)

    def recipe(self, total: int, *, is_added: bool = False) -> bytes:
        """The digest of all that decides the bytes, for so many samples."""
        told = asdict(self) | {"version": _VERSION, "total": total, "is_added": is_added}
        told["maxsize"], told["maxcount"] = self.limits.nbytes, self.limits.samples
        told["fields"] = None if self.fields is None else sorted(map(list, self.fields.items()))
        told["part"] = None if self.part is None else self.part[1]
        for name in ("small_members", "rows"):  # sets that were begun before there were these go on
            if told[name] == _USUAL[name]:
                del told[name]
        return wide_digest_of(json.dumps(told, sort_keys=True, default=str).encode())

    def indices(self, total: int, done: int = 0) -> Indices:
        """The samples of the source that this part writes, in their order, but for the first ``done`` of them."""
        part, count = self.part or (0, 1)
        key = int(derive(order_key(self.seed, 0), _ORDER)) & WORD if self.shuffle else None
        return Indices(range(part * total // count + done, (part + 1) * total // count), total, key)


class Indices(Sequence[int]):
    """Indices of a source, in the order in which its samples are written; computed where they are looked at."""

    def __init__(self, places: range, total: int, key: int | None) -> None:
        self.places = places
        self._total, self._key = total, key

    def __len__(self) -> int:
        return len(self.places)

    def block(self, begin: int, end: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Those from ``begin`` to ``end``, at once."""
        some = self.places[begin:end]
        places = np.arange(some.start, some.stop, dtype=np.int64)
        if self._key is None or not len(places):
            return places
        return permute(places.view(np.uint64), self._total, np.array([self._key], np.uint64)).view(np.int64)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Indices(self.places[index], self._total, self._key)
        place = self.places[index] - self.places.start
        return int(self.block(place, place + 1)[0])

    def __iter__(self) -> Iterator[int]:
        for begin in range(0, len(self), _BLOCK):
            yield from self.block(begin, begin + _BLOCK).tolist()


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def bytes_of(size: object) -> float | None:
    """Bytes of a number, or of text such as "64MB", "1.5 GiB"; None if it is neither.

    Example:
        >>> bytes_of("64MB"), bytes_of("1.5 GiB"), bytes_of("a lot")
        (64000000.0, 1610612736.0, None)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", size.upper()) if isinstance(size, str) else None
    if found is not None and found[2] in _UNITS:
        return float(found[1]) * _UNITS[found[2]]
    return float(size) if isinstance(size, int | float) and not isinstance(size, bool) else None


def _nbytes_of(size: object) -> int:
    nbytes = bytes_of(size)
    if nbytes is None:
        raise ConfigError(f"maxsize is a number of bytes, or text such as '64MB', not {size!r}")
    if not _LEAST_NBYTES <= nbytes < 1 << 40:
        raise ConfigError(f"maxsize is from {_LEAST_NBYTES:,} bytes to a terabyte, not {size!r}")
    return int(nbytes)
