"""What of a sample is wanted, and in which form: a dict of all fields, a tuple of some, or one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards.fields import Field

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.shards.decode import Decode, Decoding
    from swift_loader.shards.opened import OpenShard
    from swift_loader.shards.table import Table

    Part: TypeAlias = Callable[[OpenShard, int], Any]

#: Asks for the sample's key, as if it were a field.
KEY = "__key__"
_ABSENT = object()


class _Way(NamedTuple):
    """One way to a part of a sample: a field that it may have."""

    number: int
    field: Field
    get: Part
    """The part; `_ABSENT` where a sample has no such field."""


class Wishes:
    """What the user asked for: names of fields, each with others in its place (``"jpg;png"``).

    Args:
        fields: those names; one alone is text. None: all there are, as a dict.
        decoder_of: what decodes a field.
        build: makes a sample of the parts, where it is no tuple of them.
        every: all names there are, in another order than that of the table.
        in_full: dicts have the sample's key too, and numbers are the bytes that they were written as.
    """

    def __init__(
        self,
        fields: str | Sequence[str] | None,
        decoder_of: Callable[[Field], Decode],
        build: Callable[[Iterator[Any]], Any] | None = None,
        every: Sequence[str] | None = None,
        *,
        in_full: bool = False,
    ) -> None:
        self._in_full = in_full
        self._asked = _names_of(fields)
        self._is_alone = isinstance(fields, str)
        self._decoder_of = decoder_of
        self._build = build
        self._every = every
        self._of: WeakKeyDictionary[Table, Granted] = WeakKeyDictionary()

    def of(self, table: Table) -> Granted:
        """How the samples of one shard come to what was asked for."""
        granted = self._of.get(table)
        if granted is None:
            granted = self._of[table] = self._granted(table)
        return granted

    def _granted(self, table: Table) -> Granted:
        if self._asked is None:
            names = [*([KEY] if self._in_full else []), *(self._every or table.field_numbers)]
            return Granted([self._ways(table, (name,)) for name in names], names, is_alone=False)
        parts = [self._ways(table, tuple(name.split(";"))) for name in self._asked]
        return Granted(parts, None, is_alone=self._is_alone, build=self._build)

    def _ways(self, table: Table, names: tuple[str, ...]) -> list[_Way]:
        if names == (KEY,):
            return [_Way(-1, Field(KEY), lambda shard, sample: shard.table.key(sample))]
        known = table.field_numbers
        numbers = [known.get(name, known.get(name.lower())) for name in names]
        ways = [self._way(table, number) for number in numbers if number is not None]
        if not ways:
            raise ShardError(f"no sample has a field {' or '.join(map(repr, names))}: there are {', '.join(known)}")
        return ways

    def _way(self, table: Table, number: int) -> _Way:
        field = table.fields[number]
        if field.has_column and not self._in_full:
            column = table.columns[field.name]
            return _Way(number, field, lambda _, sample: column[sample].item())
        decode = self._decoder_of(field if table.rows is None else replace(field, skip=0))

        def get(shard: OpenShard, sample: int) -> Any:
            data = shard.read_file(sample, number) if self._in_full else shard.read(sample, number)
            return _ABSENT if data is None else decode(data)

        return _Way(number, field, get)


class Granted:
    """How the samples of one shard come to what was asked for."""

    def __init__(
        self,
        parts: list[list[_Way]],
        names: list[str] | None,
        *,
        is_alone: bool,
        build: Callable[[Iterator[Any]], Any] | None = None,
    ) -> None:
        self._parts = parts
        self._names = names
        """With these it is a dict, of what there is."""
        self._is_alone = is_alone
        self._build = build
        self.are_rows = build is None and all(len(ways) == 1 and (ways[0].field.dtype != "") for ways in parts)
        """Whether each part is a number, or an array that is as large in all samples."""

    def sample(self, shard: OpenShard, sample: int) -> Any:
        """One sample."""
        if self._names is not None:
            found = {name: ways[0].get(shard, sample) for name, ways in zip(self._names, self._parts, strict=True)}
            return {name: part for name, part in found.items() if part is not _ABSENT}
        parts = tuple(_first(ways, shard, sample) for ways in self._parts)
        if self._build is not None:
            return self._build(iter(parts))
        return parts[0] if self._is_alone else parts

    @property
    def only_ways(self) -> list[_Way]:
        """The way to each part, where these are rows."""
        return [way for (way,) in self._parts]

    def columns_of(self, rows: Any) -> list[Any]:
        """The array of a batch that each part is to be put in."""
        if self._names is not None:
            return [rows[name] for name in self._names]
        return [rows] if self._is_alone else list(rows)

    def read_into(self, shard: OpenShard, samples: NDArray[np.int64], rows: Any, at: list[int]) -> None:
        """Writes samples to their rows in a batch."""
        are_several = sum(not way.field.has_column for way in self.only_ways) > 1
        whole = shard.read_rows(samples) if shard.table.rows is not None and are_several else None
        for way, column in zip(self.only_ways, self.columns_of(rows), strict=True):
            field = way.field
            if field.has_column:
                column[at] = shard.table.columns[field.name][samples]
            elif (field.shape, np.dtype(field.dtype)) != (column.shape[1:], column.dtype):
                found = f"{field.dtype} {field.shape}"
                raise ShardError(f"arrays of {field.name!r} are {found} in this shard, and others elsewhere").within(
                    shard=shard.name, set=shard.where
                )
            elif whole is not None:
                _as_bytes(column)[at] = whole[:, field.skip : field.skip + (field.array_nbytes or 0)]
            else:
                shard.read_arrays(samples, way.number, _as_bytes(column), at)


def _names_of(fields: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if fields is None:
        return None
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    if not names or "" in names or {str} != set(map(type, names)):
        raise ConfigError(f'fields must be names of fields, such as ("jpg;png", "cls"), not {fields!r}')
    return names


def _first(ways: list[_Way], shard: OpenShard, sample: int) -> Any:
    for way in ways:
        part = way.get(shard, sample)
        if part is not _ABSENT:
            return part
    raise shard.told(ShardError(f"the sample has no field {' or '.join(repr(way.field.name) for way in ways)}"), sample)


def decoder_in_tars(field: Field, decoding: Decoding) -> Decode:
    """What decodes a field of a tar file: its name says that, but for arrays of which the table knows all."""
    if not field.dtype or decoding.is_none:
        return decoding.of(field.name)

    def array(data: Any) -> Any:
        # Those that are alike lie behind a header that is alike too.
        return data[field.skip :].view(field.dtype).reshape(field.shape)

    return array


def _as_bytes(column: Any) -> Any:
    return column.reshape(len(column), -1).view(np.uint8)
