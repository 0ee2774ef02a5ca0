"""Writes shards one after the other. It knows bytes and limits; what is written, from where on, is `creating`'s."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.warn import warn_user
from swift_loader.host.xxhash import WideDigest, digest_of
from swift_loader.shards import tar
from swift_loader.shards.catalog import Shard
from swift_loader.shards.encode import Encoded
from swift_loader.shards.fields import COLUMN, MOST_FIELDS, Field
from swift_loader.shards.row_writer import RowShard
from swift_loader.shards.sending import Sending
from swift_loader.shards.store import Draft, Store
from swift_loader.shards.table import (
    ABSENT,
    ENTRY_NBYTES,
    FIELD_NBYTES,
    FOOTER_FROM_END,
    MOST_SAMPLES,
    Origin,
    Table,
    padded_end,
    sections_of,
)
from swift_loader.shards.written import check_names, column_of, exact_column, sealed_shard

#: So much is collected before it is written.
_WRITTEN_AT_ONCE = 1 << 20
#: Smaller pieces are put together first: one call is cheaper than many.
_SMALL_PIECE = 8 << 10
#: A member's headers and padding never take more, nor what surrounds the parts of a table.
_MOST_AROUND = 8 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """When a shard is full, and how samples lie in it."""

    nbytes: int
    samples: int = MOST_SAMPLES
    numbers_alone: bool = False
    """Numbers stand in the table, and nowhere else."""
    rows: bool = False
    """See `row_writer`."""


class ShardWriter:
    """Writes samples into shards of a store.

    Args:
        store: Where to.
        name: What the k-th shard that is written here is called.
        limits: When a shard is full.
        origin: Of the first sample; positions of further shards follow.
        on_shard: Called with each shard that is there now, and its fields.
    """

    def __init__(
        self,
        store: Store,
        name: Callable[[int], str],
        limits: Limits,
        origin: Origin,
        on_shard: Callable[[Shard, Sequence[Field]], None],
    ) -> None:
        self._store, self._name, self._limits, self._origin = store, name, limits, origin
        self._sending = Sending(store, limits.nbytes, on_shard)
        self._number = 0
        self._shard: _Shard | RowShard | None = None
        self._has_warned = False

    @property
    def nbytes_begun(self) -> int:
        """What stands in the shard that is being written."""
        return 0 if self._shard is None else self._shard.nbytes

    def add(self, key: bytes, fields: Sequence[Encoded]) -> None:
        """Writes a sample: its fields, in the order of their names."""
        shard = self._shard
        if shard is not None and not shard.has_room(key, fields, self._limits):
            self._end(shard, is_last=False)
            shard = None
        if shard is None:
            shard = self._shard = self._begun(self._store.draft(self._name(self._number)))
            if not self._has_warned and not shard.has_room(key, fields, self._limits):
                self._has_warned = True
                warn_user(f"a single sample ({key.decode()}) takes more than maxsize={self._limits.nbytes:,} bytes")
        shard.add(key, fields)

    def finish(self) -> None:
        """Writes what is left: the last shard. All of them are there when it returns."""
        if self._shard is not None:
            self._end(self._shard, is_last=True)
        self._sending.finish()

    def abandon(self) -> None:
        """Drops the shard that is being written, and those that are not on their way yet."""
        if self._shard is not None:
            self._shard.draft.discard()
            self._shard = None
        self._sending.abandon()

    def _begun(self, draft: Draft) -> _Shard | RowShard:
        try:
            return RowShard(draft, self._limits) if self._limits.rows else _Shard(draft, self._limits.numbers_alone)
        except BaseException:
            draft.discard()
            raise

    def _end(self, shard: _Shard | RowShard, *, is_last: bool) -> None:
        name = self._name(self._number)
        line, fields = shard.end(name, replace(self._origin, is_last=is_last))
        self._shard = None
        self._number += 1
        self._origin = replace(self._origin, position=self._origin.position + line.samples)
        self._sending.send(shard.draft, line, fields)


class _Shard:
    """A shard that is being written."""

    def __init__(self, draft: Draft, numbers_alone: bool) -> None:  # noqa: FBT001 - as the limits say
        self.draft = draft
        self._numbers_alone = numbers_alone
        self._alone: tuple[str, ...] = ()
        """Numbers that are no members, the same of all samples."""
        self._digest = WideDigest()
        self._pieces: list[Any] = []
        self._waiting = 0
        self._place = 0
        self._keys: dict[bytes, None] = {}
        self._keys_nbytes = 0
        self._entries = array("Q")
        #: From which sample on samples have which fields.
        self._turns: list[tuple[int, tuple[str, ...]]] = []
        self._names: tuple[str, ...] = ()
        self._all_names: set[str] = set()
        self._endings: dict[str, bytes] = {}
        self._numbers: dict[str, list[int | float]] = {}
        self._arrays: dict[str, Field | None] = {}

    @property
    def nbytes(self) -> int:
        """What of it was given so far."""
        return self._place

    def has_room(self, key: bytes, fields: Sequence[Encoded], limits: Limits) -> bool:
        """Whether the shard would be within its limits with one sample more."""
        count = len(self._keys) + 1
        if count > limits.samples:
            return False
        width, keys = len(self._all_names) + len(fields), self._keys_nbytes + len(key)
        most = self._place + keys + count * (width * (ENTRY_NBYTES + 8) + 8) + width * (FIELD_NBYTES + _MOST_AROUND)
        for field in fields:
            most += len(field[1])
        if most + _MOST_AROUND <= limits.nbytes:
            return True
        place = self._place + sum(
            tar.header_nbytes(len(key) + 1 + len(name)) + tar.padded(len(data))
            for name, data, value, _ in fields
            if value is None or not self._numbers_alone
        )
        numeric = {field.name for field in fields if field.number is not None} | self._numbers.keys()
        names = self._all_names.union(field.name for field in fields)
        table = padded_end(sections_of(count, len(names), len(numeric), keys))
        return place + tar.BLOCK + table + FOOTER_FROM_END <= limits.nbytes

    def add(self, key: bytes, fields: Sequence[Encoded]) -> None:
        """Writes a sample."""
        number = len(self._keys)
        names = tuple([field.name for field in fields])
        if self._numbers_alone:
            fields = self._without_numbers(number, key, fields)
        if names != self._names or not number:
            self._turn(number, names, key)
        self._keys[key] = None
        if len(self._keys) == number:
            raise ShardError("two samples of a shard have one key").within(key=key.decode())
        self._keys_nbytes += len(key)
        pieces, place, entries = self._pieces, self._place, self._entries
        before = place
        endings = self._endings
        for name, data, value, known in fields:
            nbytes = len(data)
            head = tar.header(key + endings[name], nbytes)
            padding = -nbytes % tar.BLOCK
            place += len(head)
            pieces += (head, data, tar.PADDING[padding])
            entries.extend((place, nbytes, digest_of(data)))
            place += nbytes + padding
            if value is not None:
                self._numbers.setdefault(name, []).append(value)
            if known is not None or name in self._arrays:
                self._note_array(name, known, number)
        self._waiting += place - before
        self._place = place
        if self._waiting >= _WRITTEN_AT_ONCE:
            self._write_out()

    def end(self, name: str, origin: Origin) -> tuple[Shard, tuple[Field, ...]]:
        """Writes the table and all that comes behind it."""
        self._write_out()
        table = self._table(origin)
        return sealed_shard(self.draft, name, table), table.fields

    def _without_numbers(self, number: int, key: bytes, fields: Sequence[Encoded]) -> list[Encoded]:
        """Takes the numbers of a sample; what else it has."""
        numbers = {field.name: field.number for field in fields if field.number is not None}
        if not number:
            self._alone = tuple(numbers)
        elif self._alone != tuple(numbers):
            raise ShardError(
                "where numbers stand in the table alone (small_members=False), all samples of a shard have the same "
                f"ones: before, {', '.join(self._alone) or 'none'}, and here {', '.join(numbers) or 'none'}"
            ).within(key=key.decode())
        for name, value in numbers.items():
            self._numbers.setdefault(name, []).append(value)
        return [field for field in fields if field.number is None]

    def _turn(self, number: int, names: tuple[str, ...], key: bytes) -> None:
        check_names(names, key)
        self._all_names.update(names)
        self._endings.update({name: f".{name}".encode() for name in names})
        if len(self._all_names) > MOST_FIELDS:
            many = ShardError.at("the samples of a shard have too many fields", None, MOST_FIELDS, len(self._all_names))
            raise many.within(key=key.decode())
        self._names = names
        self._turns.append((number, tuple([name for name in names if name not in self._alone])))

    def _note_array(self, name: str, known: Field | None, number: int) -> None:
        """Arrays are alike in all samples, or the table does not say what they are."""
        if name not in self._arrays:
            is_first = number == 0 or name not in {n for turn in self._turns if turn[0] < number for n in turn[1]}
            self._arrays[name] = known if is_first else None
        elif known != self._arrays[name]:
            self._arrays[name] = None

    def _write_out(self) -> None:
        pieces, self._pieces = self._pieces, []
        if self._waiting < _SMALL_PIECE * len(pieces):
            pieces = [b"".join(pieces)]
        self._waiting = 0
        for piece in pieces:
            self._digest.update(piece)
        self.draft.write(pieces)

    def _table(self, origin: Origin) -> Table:
        count, names = len(self._keys), sorted(self._all_names)
        columns = {
            name: column
            for name in names
            if len(numbers := self._numbers.get(name, ())) == count and (column := exact_column(numbers)) is not None
        }
        columns |= {name: column_of(name, self._numbers[name]) for name in self._alone}
        fields = tuple(_field(name, columns.get(name), self._arrays.get(name)) for name in names)
        keys = list(self._keys)
        key_ends = np.cumsum(np.fromiter(map(len, keys), np.uint64, count), dtype="<u8")
        return Table(
            count, fields, self._place, self._digest.digest(), self._entry_matrix(names), columns, key_ends,
            memoryview(b"".join(keys)), origin,
        )  # fmt: skip

    def _entry_matrix(self, names: list[str]) -> Any:
        count, flat = len(self._keys), np.frombuffer(self._entries, np.uint64).astype("<u8", copy=False)
        matrix = np.zeros((count, len(names), 3), "<u8")
        matrix[:, :, 1] = ABSENT
        done = 0
        for (begin, turn), (end, _) in zip(self._turns, [*self._turns[1:], (count, ())], strict=True):
            nbytes = (end - begin) * len(turn) * 3
            columns = [names.index(name) for name in turn]
            matrix[begin:end, columns] = flat[done : done + nbytes].reshape(end - begin, len(turn), 3)
            done += nbytes
        return matrix


def _field(name: str, column: Any, known: Field | None) -> Field:
    if column is not None:
        return Field(name, column.dtype.str, flags=COLUMN)
    return Field(name) if known is None else replace(known, name=name)
