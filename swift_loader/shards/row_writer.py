"""Shards whose samples are rows: arrays of one size each, one sample behind the other, without anything between them.

All rows of a shard are one member, a .npy file: numpy reads it, several arrays of a sample as the fields of a record.
Numbers stand in the table alone. How many rows there are stands before them, so they are held until the shard is full.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import NoRoom, ShardError
from swift_loader.host.memory import free_nbytes
from swift_loader.host.xxhash import WideDigest, digest_of
from swift_loader.shards import tar
from swift_loader.shards.encode import Encoded, npy_head
from swift_loader.shards.fields import COLUMN, Field
from swift_loader.shards.table import FOOTER_FROM_END, Origin, Rows, Table, padded_end, sections_of
from swift_loader.shards.written import check_names, column_of, sealed_shard

if TYPE_CHECKING:
    from swift_loader.shards.catalog import Shard
    from swift_loader.shards.store import Draft
    from swift_loader.shards.writer import Limits

_WRITTEN_AT_ONCE = 1 << 20


def front_of(fields: Sequence[Field], samples: int, position: int) -> bytes:
    """All that comes before the first row of a shard: the header of the member, and that of .npy."""
    arrays = [field for field in fields if not field.has_column]
    if len(arrays) == 1:
        name, head = arrays[0].name, npy_head(np.dtype(arrays[0].dtype), (samples, *arrays[0].shape))
    else:
        name = "rows.npy"
        head = npy_head(np.dtype([(one.name, one.dtype, one.shape) for one in arrays]), (samples,))
    nbytes = sum(one.array_nbytes or 0 for one in arrays)
    return tar.header(b"%09d.%s" % (position, name.encode()), len(head) + samples * nbytes) + head


class RowShard:
    """A shard of rows that is being written."""

    def __init__(self, draft: Draft, limits: Limits) -> None:
        self.draft = draft
        if limits.nbytes > 64 << 20 and limits.nbytes > (allowed := free_nbytes() // 4):
            text = "rows are held in memory until their shard is full, and maxsize is over a quarter of what is free"
            raise NoRoom.of(text, limits.nbytes, allowed)
        self._rows: list[Any] = []
        self._digests = array("Q")
        self._keys: dict[bytes, None] = {}
        self._keys_nbytes = 0
        self._kinds: list[Field] = []
        """Of the first sample; those of the others are the same."""
        self._numbers: dict[str, list[int | float]] = {}
        self._row_nbytes = 0
        self._around = 0
        """What headers and padding take at most."""

    @property
    def nbytes(self) -> int:
        """What of it was given so far."""
        return len(self._keys) * self._row_nbytes

    def has_room(self, key: bytes, fields: Sequence[Encoded], limits: Limits) -> bool:
        """Whether the shard would be within its limits with one sample more."""
        count = len(self._keys) + 1
        row = self._row_nbytes or sum(len(data) for _, data, number, _ in fields if number is None)
        numeric = sum(field.number is not None for field in fields)
        table = padded_end(sections_of(count, len(fields), numeric, self._keys_nbytes + len(key), rows=True))
        return count <= limits.samples and self._around + count * row + table + FOOTER_FROM_END <= limits.nbytes

    def add(self, key: bytes, fields: Sequence[Encoded]) -> None:
        """Takes a sample."""
        kinds = [_kind_of(field, key) for field in fields]
        if not self._keys:
            self._begin(kinds, key)
        elif kinds != self._kinds:
            raise ShardError(
                f"rows are alike in all samples: there are {_told(self._kinds)}, and here {_told(kinds)}"
            ).within(key=key.decode())
        number = len(self._keys)
        self._keys[key] = None
        if len(self._keys) == number:
            raise ShardError("two samples of a shard have one key").within(key=key.decode())
        self._keys_nbytes += len(key)
        parts = []
        for (name, data, value, _), kind in zip(fields, kinds, strict=True):
            if value is not None:
                self._numbers.setdefault(name, []).append(value)
            else:
                parts.append(memoryview(data)[kind.skip :])
        row = parts[0] if len(parts) == 1 else b"".join(parts)
        self._rows.append(row)
        self._digests.append(digest_of(row))

    def _begin(self, kinds: list[Field], key: bytes) -> None:
        check_names([kind.name for kind in kinds], key)
        self._kinds = kinds
        self._row_nbytes = sum(kind.array_nbytes or 0 for kind in kinds)
        if not self._row_nbytes:
            raise ShardError("rows are of arrays, and the sample has none").within(key=key.decode())
        self._around = len(front_of(kinds, 1, 0)) + 3 * tar.BLOCK

    def end(self, name: str, origin: Origin) -> tuple[Shard, tuple[Field, ...]]:
        """Writes it."""
        count = len(self._keys)
        fields, columns = self._fields()
        front = front_of(fields, count, origin.position)
        nbytes = len(front) + self.nbytes
        digest = WideDigest()
        at_once = max(1, _WRITTEN_AT_ONCE // self._row_nbytes)
        for begin in range(0, count, at_once):
            piece = b"".join(self._rows[begin : begin + at_once])
            self._put((front if not begin else b"") + piece, digest)
        self._put(tar.PADDING[-nbytes % tar.BLOCK], digest)
        keys = list(self._keys)
        if keys == [b"%09d" % (origin.position + at) for at in range(count)]:
            keys = []  # which is what those are called that have none
        table = Table(
            count, fields, tar.padded(nbytes), digest.digest(),
            np.frombuffer(self._digests, np.uint64).astype("<u8", copy=False).reshape(count, 1, 1), columns,
            np.cumsum(np.fromiter(map(len, keys), np.uint64, len(keys)), dtype="<u8"), memoryview(b"".join(keys)),
            origin, 0, Rows(len(front), self._row_nbytes),
        )  # fmt: skip
        return sealed_shard(self.draft, name, table), fields

    def _put(self, piece: bytes, digest: Any) -> None:
        digest.update(piece)
        self.draft.write([piece])

    def _fields(self) -> tuple[tuple[Field, ...], dict[str, Any]]:
        sizes = [kind.array_nbytes or 0 for kind in self._kinds]
        fields, columns = [], {}
        for kind, begin in zip(self._kinds, accumulate(sizes, initial=0), strict=False):
            if kind.has_column:
                columns[kind.name] = column = column_of(kind.name, self._numbers[kind.name])
                fields.append(replace(kind, dtype=column.dtype.str))
            else:
                fields.append(replace(kind, skip=begin))
        return tuple(fields), columns


def _kind_of(field: Encoded, key: bytes) -> Field:
    if field.number is not None:
        return Field(field.name, "<i8", flags=COLUMN)
    if field.array is None or not field.array.array_nbytes:
        is_picture = field.name.rpartition(".")[2] in ("png", "jpg", "jpeg")
        hint = "; an array that is taken for a picture is none where its field ends with .npy" if is_picture else ""
        raise ShardError(f"rows are arrays and numbers, and field {field.name!r} is neither{hint}").within(
            key=key.decode()
        )
    return replace(field.array, name=field.name)


def _told(kinds: Sequence[Field]) -> str:
    return ", ".join(
        f"{kind.name} (a number)" if kind.has_column else f"{kind.name} ({kind.dtype} {kind.shape})" for kind in kinds
    )
