"""The table of a shard, its last member: where each field of each sample lies, and what it is. Pure.

The bytes are told in docs/shard_format.md. A table that was read is a view of the bytes it was read from: nothing is
copied, nothing is allocated for what it says before all of it was checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import digest_of
from swift_loader.shards.fields import MOST_DIMENSIONS, MOST_FIELDS, Field
from swift_loader.shards.tar import BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEMBER = b"__swift__/table"
FOOTER_NBYTES = BLOCK
#: The footer begins so many bytes before the end of a shard.
FOOTER_FROM_END = FOOTER_NBYTES + 2 * BLOCK
ABSENT = (1 << 64) - 1
#: Flags.
ROWS, LAST, PICKLES = 1, 2, 4
#: A flag of tables that are in memory alone: they have no checksums.
UNCHECKED = 1 << 16

MOST_SAMPLES = 1 << 31
MOST_TABLE_NBYTES = 4 << 30
HEADER_NBYTES = 192
FIELD_NBYTES, ENTRY_NBYTES = 64, 24
_MAGIC, FOOTER_MAGIC = b"SWTABLE\1", b"SWFOOT\1\0"
_HEADER = struct.Struct("<8sIIQQQ16s16s6QQQQQ32xQ")
_FIELD = struct.Struct("<32s8sHHI4I")
_FOOTER = struct.Struct("<8sQQQQQ456xQ")
_KNOWN_FLAGS = ROWS | LAST | PICKLES
_U64 = np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class Footer:
    """What stands at the end of a shard: where its table is."""

    table_offset: int
    table_nbytes: int
    table_digest: int
    object_nbytes: int
    samples: int

    def written(self) -> bytes:
        """As bytes."""
        numbers = (self.table_offset, self.table_nbytes, self.table_digest, self.object_nbytes, self.samples)
        return sealed(_FOOTER.pack(FOOTER_MAGIC, *numbers, 0))

    @classmethod
    def read(cls, data: bytes, object_nbytes: int | None = None) -> Footer:
        """What these bytes say, of an object of that size.

        Raises:
            ShardError: if they are no footer, or not that of such an object.
        """
        if len(data) != FOOTER_NBYTES or data[:8] != FOOTER_MAGIC:
            raise ShardError.at("there is no footer: this is no shard of ours, or its end is missing")
        if not is_sealed(data):
            raise ShardError.at("the footer is damaged: its checksum is wrong")
        footer = cls(*_FOOTER.unpack(data)[1:6])
        if object_nbytes is not None and footer.object_nbytes != object_nbytes:
            raise ShardError.at("the shard has another size", None, footer.object_nbytes, object_nbytes)
        room = footer.object_nbytes - FOOTER_FROM_END
        if footer.table_nbytes > min(MOST_TABLE_NBYTES, room) or footer.table_nbytes < HEADER_NBYTES:
            raise ShardError.at("the table has a size that cannot be", None, f"at most {room}", footer.table_nbytes)
        if footer.table_offset + footer.table_nbytes != room or footer.table_offset < BLOCK:
            raise ShardError.at("the table is not before the footer", None, room, footer.table_offset)
        return footer


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the samples of a shard stand among all that were written together.

    Attributes:
        position: Of the first of them.
        total: How many there are in all; 0 where that was not known.
        recipe: 16 bytes, the digest of all that decides what the shards' bytes are.
        is_last: Whether the writer, or this part of it, has ended with this shard.
    """

    position: int = 0
    total: int = 0
    recipe: bytes = bytes(16)
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples of one size each, one behind the other, without entries: only a checksum for each."""

    offset: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class Table:
    """The table of one shard.

    Attributes:
        samples: How many there are.
        fields: What they have, in the order of the names.
        payload_nbytes: All samples lie in the first so many bytes of the shard.
        payload_digest: xxh3_128 of those bytes.
        entries: (samples, fields, 3) of u64: offset, size, xxh3; `ABSENT` as size where a sample has no such field.
            Of rows it is (samples, 1, 1): the checksums.
        columns: A number of each sample, for fields that have them; i64 or f64. Where such a field is absent, or
            samples are rows, it stands nowhere else.
        key_ends: Where each key ends in ``key_bytes``; empty if the samples' keys are their positions.
        rows: Where rows are, if there are no entries.
    """

    samples: int
    fields: tuple[Field, ...]
    payload_nbytes: int
    payload_digest: bytes
    entries: NDArray[np.uint64]
    columns: Mapping[str, NDArray[Any]]
    key_ends: NDArray[np.uint64]
    key_bytes: memoryview
    origin: Origin = Origin()
    flags: int = 0
    rows: Rows | None = None

    def key(self, index: int) -> str:
        """The key of a sample."""
        if not len(self.key_ends):
            return f"{self.origin.position + index:09d}"
        begin = int(self.key_ends[index - 1]) if index else 0
        written = bytes(self.key_bytes[begin : int(self.key_ends[index])])
        try:
            return written.decode()
        except UnicodeDecodeError as error:
            raise ShardError.at("the key of a sample is no UTF-8", None, None, written[:100]) from error

    @cached_property
    def field_numbers(self) -> dict[str, int]:
        """The place of each field among `fields`, by its name."""
        return {field.name: number for number, field in enumerate(self.fields)}

    def written(self) -> bytes:
        """As bytes, padded to whole blocks."""
        keys = self.key_bytes.nbytes if len(self.key_ends) else None
        sections = sections_of(self.samples, len(self.fields), len(self.columns), keys, rows=self.rows is not None)
        columns = [np.ascontiguousarray(self.columns[field.name]) for field in self.fields if field.has_column]
        parts = (
            b"".join(map(_field_bytes, self.fields)),
            self.entries.tobytes(),
            b"".join(column.tobytes() for column in columns),
            self.key_ends.tobytes(),
            self.key_bytes,
        )
        out = bytearray(padded_end(sections))
        out[:HEADER_NBYTES] = self._header(sections)
        for place, part in zip(sections, parts, strict=False):
            out[place : place + len(part)] = part
        return bytes(out)

    def _header(self, sections: Sequence[int]) -> bytes:
        rows, origin = self.rows or Rows(0, 0), self.origin
        return sealed(
            _HEADER.pack(
                _MAGIC, HEADER_NBYTES, len(self.fields), self.samples, self.payload_nbytes, origin.position,
                origin.recipe, self.payload_digest, *sections,
                self.flags | (ROWS if self.rows else 0) | (LAST if origin.is_last else 0),
                rows.offset, rows.nbytes, origin.total, 0,
            )
        )  # fmt: skip

    @classmethod
    def read(cls, data: Any, payload_room: int, digest: int | None = None) -> Table:
        """What these bytes say, of an object whose samples lie in its first ``payload_room`` bytes at most.

        Raises:
            ShardError: if they are no table, or one that says what cannot be.
        """
        view = memoryview(data).cast("B")
        if digest is not None and (found := digest_of(view)) != digest:
            raise ShardError.at("the table is damaged: its checksum is wrong", 0, f"{digest:016x}", f"{found:016x}")
        return _read(view, payload_room)


def sealed(block: bytes) -> bytes:
    """A block whose last eight bytes are made the checksum of all before them."""
    return block[:-8] + digest_of(block[:-8]).to_bytes(8, "little")


def is_sealed(block: bytes) -> bool:
    """Whether they still are."""
    return digest_of(block[:-8]) == int.from_bytes(block[-8:], "little")


def sections_of(samples: int, fields: int, numeric: int, key_nbytes: int | None, *, rows: bool = False) -> list[int]:
    """Where fields, entries, columns, keys and the bytes of keys begin, and where those end; None: no keys."""
    entry = 8 if rows else fields * ENTRY_NBYTES
    keys = 0 if key_nbytes is None else samples * 8
    places = [HEADER_NBYTES]
    for nbytes in (fields * FIELD_NBYTES, samples * entry, samples * numeric * 8, keys):
        places.append(-(-(places[-1] + nbytes) // 64) * 64)
    return [*places, places[-1] + (key_nbytes or 0)]


def padded_end(sections: Sequence[int]) -> int:
    """How many bytes a table has whose parts lie there."""
    return -(-sections[-1] // BLOCK) * BLOCK


def _field_bytes(field: Field) -> bytes:
    shape = (*field.shape, *(0,) * (MOST_DIMENSIONS - len(field.shape)))
    return _FIELD.pack(field.name.encode(), field.dtype.encode(), len(field.shape), field.flags, field.skip, *shape)


def _read(view: memoryview, payload_room: int) -> Table:
    head = bytes(view[:HEADER_NBYTES])
    if len(head) < HEADER_NBYTES or head[:8] != _MAGIC:
        raise ShardError.at("there is no table, or one of another version", 0, _MAGIC, head[:8])
    if not is_sealed(head):
        raise ShardError.at("the head of the table is damaged: its checksum is wrong", 184)
    _, header_nbytes, count, samples, payload, position, recipe, payload_digest, *rest = _HEADER.unpack(head)
    sections, (flags, rows_offset, row_nbytes, total, _) = rest[:6], rest[6:]
    _refuse_unless(header_nbytes == HEADER_NBYTES, "the table is of another version", 8, header_nbytes)
    _refuse_unless(1 <= count <= MOST_FIELDS, "the number of fields cannot be", 12, count)
    _refuse_unless(1 <= samples <= MOST_SAMPLES, "the number of samples cannot be", 16, samples)
    _refuse_unless(payload <= payload_room, "the samples' part of the shard is too large", 24, payload)
    _refuse_unless(position + samples < 1 << 63, "the position of the samples cannot be", 32, position)
    _refuse_unless(not flags & ~_KNOWN_FLAGS, "the table says what this version does not know", 120, flags)
    _refuse_unless(len(view) >= HEADER_NBYTES + count * FIELD_NBYTES, "the table is cut", 0, len(view))
    fields = tuple(_fields(bytes(view[HEADER_NBYTES : HEADER_NBYTES + count * FIELD_NBYTES]), count))
    rows = Rows(rows_offset, row_nbytes) if flags & ROWS else None
    parts = _Parts(view, samples, fields, rows)
    parts.check(sections)
    table = Table(
        samples, fields, payload, payload_digest, parts.entries(sections), parts.columns(sections),
        parts.key_ends(sections), view[sections[4] : sections[5]], Origin(position, total, recipe, bool(flags & LAST)),
        flags & ~(ROWS | LAST), rows,
    )  # fmt: skip
    _check_keys(table)
    _check_places(table)
    return table


def _refuse_unless(holds: bool, text: str, offset: int, found: object) -> None:  # noqa: FBT001 - it is what is asked
    if not holds:
        raise ShardError.at(text, offset, None, found)


def _fields(data: bytes, count: int) -> Iterator[Field]:
    before = b""
    for number in range(count):
        name, dtype, dimensions, flags, skip, *shape = _FIELD.unpack_from(data, number * FIELD_NBYTES)
        name, place = name.rstrip(b"\0"), HEADER_NBYTES + number * FIELD_NBYTES
        if dimensions > MOST_DIMENSIONS or name <= before or any(shape[dimensions:]):
            raise ShardError.at("the fields of the table are not in order, or none that there can be", place)
        sides = tuple(shape[:dimensions])
        field = Field(name.decode("latin1"), dtype.rstrip(b"\0").decode("latin1"), sides, skip, flags)
        field.check()
        yield field
        before = name


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a table that is read."""

    view: memoryview
    samples: int
    fields: tuple[Field, ...]
    rows: Rows | None

    def check(self, sections: list[int]) -> None:
        """Raises unless all parts are where they are to be, so that none is over another, or behind the end."""
        numeric = sum(field.has_column for field in self.fields)
        key_nbytes = None if sections[3] == sections[4] else sections[5] - sections[4]
        expected = sections_of(self.samples, len(self.fields), numeric, key_nbytes, rows=self.rows is not None)
        if sections != expected or key_nbytes == 0:
            raise ShardError.at("the parts of the table are not where they should be", 72, expected, sections)
        _refuse_unless(padded_end(sections) == len(self.view), "the table has another size", 112, len(self.view))

    def entries(self, sections: list[int]) -> NDArray[np.uint64]:
        shape = (self.samples, 1, 1) if self.rows else (self.samples, len(self.fields), 3)
        return self._array(sections[1], shape, _U64)

    def columns(self, sections: list[int]) -> dict[str, NDArray[Any]]:
        named = [field for field in self.fields if field.has_column]
        return {
            field.name: self._array(sections[2] + number * self.samples * 8, (self.samples,), np.dtype(field.dtype))
            for number, field in enumerate(named)
        }

    def key_ends(self, sections: list[int]) -> NDArray[np.uint64]:
        return self._array(sections[3], (self.samples if sections[4] > sections[3] else 0,), _U64)

    def _array(self, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        count = int(np.prod(shape))
        array = np.frombuffer(self.view, dtype, count, place) if count else np.empty(0, dtype)
        array.flags.writeable = False
        return array.reshape(shape)


def _check_keys(table: Table) -> None:
    ends = table.key_ends
    if len(ends) and (ends[0] == 0 or bool((ends[1:] <= ends[:-1]).any()) or int(ends[-1]) != table.key_bytes.nbytes):
        raise ShardError.at("the keys of the table do not lie one behind the other")


def _check_places(table: Table) -> None:
    """Raises unless all that the table points to lies in the samples' part of the shard, each byte in one place."""
    if table.rows is not None:
        needed = table.rows.offset + table.samples * table.rows.nbytes
        arrays = [field for field in table.fields if not field.has_column]
        inside = all(f.array_nbytes and f.skip + f.array_nbytes <= table.rows.nbytes for f in arrays)
        if needed > table.payload_nbytes or not inside:
            raise ShardError.at("rows go on behind the samples' part", 128, table.payload_nbytes, needed)
        return
    for number, field in enumerate(table.fields):
        _check_arrays(table.entries[:, number, 1], field)
    offsets, nbytes = table.entries[..., 0].reshape(-1), table.entries[..., 1].reshape(-1)
    if len(missing := np.flatnonzero(nbytes == ABSENT)):
        there = np.delete(np.arange(len(nbytes)), missing)
        offsets, nbytes = offsets[there], nbytes[there]
    ends = offsets + nbytes
    if not len(ends) or (bool((offsets[1:] >= ends[:-1]).all()) and not _outside(offsets, ends, table)):
        return
    # Files of others have a sample's fields in any order.
    entries = table.entries.copy()
    entries[..., 0][entries[..., 1] == ABSENT] = ABSENT
    order = np.argsort(entries[..., 0], axis=1, kind="stable")
    entries = np.take_along_axis(entries, order[..., None], axis=1).reshape(-1, 3)
    entries = entries[entries[:, 1] != ABSENT]
    ends = entries[:, 0] + entries[:, 1]
    wrong = np.flatnonzero(entries[1:, 0] < ends[:-1])
    if len(wrong) or _outside(entries[:, 0], ends, table):
        raise ShardError.at(
            "the table points to what is not there, or twice to the same bytes", None, f"up to {table.payload_nbytes}",
            None if not len(wrong) else int(entries[wrong[0] + 1, 0]),
        )  # fmt: skip


def _outside(offsets: NDArray[np.uint64], ends: NDArray[np.uint64], table: Table) -> bool:
    return bool((ends < offsets).any()) or int(ends.max()) > table.payload_nbytes


def _check_arrays(nbytes: NDArray[np.uint64], field: Field) -> None:
    if field.array_nbytes is not None:
        expected = field.array_nbytes + field.skip
        wrong = (nbytes != expected) & (nbytes != ABSENT)
        if bool(wrong.any()):
            found = int(nbytes[np.argmax(wrong)])
            raise ShardError.at(f"an array of field {field.name!r} has another size", None, expected, found)
