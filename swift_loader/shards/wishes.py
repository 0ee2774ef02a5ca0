"""What of a sample is wanted, and in which form: a dict of all fields, a tuple of some, or one alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards.fields import Field

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.shards.decode import Decoding
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
    """What the user asked for: names of fields, each with others in its place (``"jpg;png"``)."""

    def __init__(self, fields: str | Sequence[str] | None, decoding: Decoding) -> None:
        self._asked = _names_of(fields)
        self._is_alone = isinstance(fields, str)
        self._decoding = decoding
        self._of: WeakKeyDictionary[Table, Granted] = WeakKeyDictionary()

    def of(self, table: Table) -> Granted:
        """How the samples of one shard come to what was asked for."""
        granted = self._of.get(table)
        if granted is None:
            granted = self._of[table] = self._granted(table)
        return granted

    def __reduce__(self) -> Any:
        fields = None if self._asked is None else self._asked[0] if self._is_alone else self._asked
        return type(self), (fields, self._decoding)

    def _granted(self, table: Table) -> Granted:
        if self._asked is None:
            names = [(field.name,) for field in table.fields]
            return Granted([self._ways(table, name) for name in names], [name for (name,) in names], is_alone=False)
        parts = [self._ways(table, tuple(name.split(";"))) for name in self._asked]
        return Granted(parts, None, is_alone=self._is_alone)

    def _ways(self, table: Table, names: tuple[str, ...]) -> list[_Way]:
        if names == (KEY,):
            return [_Way(-1, Field(KEY), lambda shard, sample: shard.table.key(sample))]
        known = table.field_numbers
        ways = [self._way(table, known[name]) for name in names if name in known]
        if not ways:
            raise ShardError(f"no sample has a field {' or '.join(map(repr, names))}: there are {', '.join(known)}")
        return ways

    def _way(self, table: Table, number: int) -> _Way:
        field = table.fields[number]
        if field.has_column:
            column = table.columns[field.name]
            return _Way(number, field, lambda _, sample: column[sample].item())
        decode = _array_of(field) if field.dtype else self._decoding.of(field.name)

        def get(shard: OpenShard, sample: int) -> Any:
            data = shard.read(sample, number)
            return _ABSENT if data is None else decode(data)

        return _Way(number, field, get)


class Granted:
    """How the samples of one shard come to what was asked for."""

    def __init__(self, parts: list[list[_Way]], names: list[str] | None, *, is_alone: bool) -> None:
        self._parts = parts
        self._names = names
        """With these it is a dict, of what there is."""
        self._is_alone = is_alone
        self.are_rows = all(len(ways) == 1 and (ways[0].field.dtype != "") for ways in parts)
        """Whether each part is a number, or an array that is as large in all samples."""

    def sample(self, shard: OpenShard, sample: int) -> Any:
        """One sample."""
        if self._names is not None:
            found = {name: ways[0].get(shard, sample) for name, ways in zip(self._names, self._parts, strict=True)}
            return {name: part for name, part in found.items() if part is not _ABSENT}
        parts = tuple(_first(ways, shard, sample) for ways in self._parts)
        return parts[0] if self._is_alone else parts

    def read_into(self, shard: OpenShard, samples: NDArray[np.int64], rows: Any, at: list[int]) -> None:
        """Writes samples to their rows in a batch."""
        if self._names is not None:
            columns = [rows[name] for name in self._names]
        else:
            columns = [rows] if self._is_alone else list(rows)
        for (way,), column in zip(self._parts, columns, strict=True):
            field = way.field
            if field.has_column:
                column[at] = shard.table.columns[field.name][samples]
            elif (field.shape, np.dtype(field.dtype)) != (column.shape[1:], column.dtype):
                found = f"{field.dtype} {field.shape}"
                raise ShardError(f"arrays of {field.name!r} are {found} in this shard, and others elsewhere").within(
                    shard=shard.name, set=shard.where
                )
            else:
                shard.read_arrays(samples, way.number, _as_bytes(column), at)


def _names_of(fields: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if fields is None:
        return None
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    if not names or "" in names or {str} != set(map(type, names)):
        raise ConfigError(f'fields must be names of fields, such as ("jpg;png", "cls"), not {fields!r}')
    return tuple(name.lower() for name in names)


def _first(ways: list[_Way], shard: OpenShard, sample: int) -> Any:
    for way in ways:
        part = way.get(shard, sample)
        if part is not _ABSENT:
            return part
    raise shard.told(ShardError(f"the sample has no field {' or '.join(repr(way.field.name) for way in ways)}"), sample)


def _array_of(field: Field) -> Callable[[Any], Any]:
    """Arrays that are alike lie behind a header that is alike too."""

    def array(data: Any) -> Any:
        return data[field.skip :].view(field.dtype).reshape(field.shape)

    return array


def _as_bytes(column: Any) -> Any:
    return column.reshape(len(column), -1).view(np.uint8)
