"""Tar files that others wrote: gone through once, their members made samples as webdataset makes them, to a table.

A member is called ``KEY.FIELD``, cut at the first dot behind the last slash; a sample ends where the key changes. What
has no dot there, or begins with ``__NAME__``, is passed over, as webdataset does. What webdataset refuses (two members
of one name in a sample) is refused, and named.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import WideDigest, digest_of
from swift_loader.shards.fields import COLUMN, MOST_DIMENSIONS, MOST_FIELDS, Field, is_field
from swift_loader.shards.npy import head_of
from swift_loader.shards.opening import refuse_large
from swift_loader.shards.table import ABSENT, ENTRY_NBYTES, Table
from swift_loader.shards.tar import is_hidden, members

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAME = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$")
#: Fields that are whole numbers in digits, by what follows the last dot: they become columns.
_NUMERIC = frozenset({"cls", "cls2", "class", "count", "index", "inx", "id"})
_DIGITS = re.compile(rb"[+-]?[0-9]{1,18}\s*")
_MOST_NUMBER_NBYTES = 32
#: The digest of the whole goes on by so many bytes: they are in the cores' caches from what was just looked at.
_STEP = 256 << 10


def foreign_table(data: memoryview) -> Table:
    """The table of a tar file.

    Raises:
        ShardError: if it is none, or one whose samples cannot be told apart; or nothing is in it.
    """
    found = _Found(data)
    found.go_through()
    if not found.keys:
        raise ShardError("there is no sample in it: none of its members is called KEY.FIELD")
    return found.table()


class _Found:
    """The samples of one file."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._digest = WideDigest()
        self.keys: list[bytes] = []
        self._names: list[str] = []
        """Fields, as they are first met."""
        self._numbers: dict[bytes, int] = {}
        """The field of each ending, in letters of any case."""
        self._last: list[int] = []
        """The last sample that had each field."""
        # One line for each member of a sample.
        self._sample, self._field = array("I"), array("B")
        self._offset, self._nbytes, self._member_digest = array("Q"), array("Q"), array("Q")

    def go_through(self) -> None:
        data, numbers, last = self._data, self._numbers, self._last
        # Each of these is done for every member there is.
        add_sample, add_field, add_digest = self._sample.append, self._field.append, self._member_digest.append
        add_offset, add_nbytes = self._offset.append, self._nbytes.append
        sample, digested = -1, 0
        current = None
        for name, offset, nbytes in members(data):
            end = offset + nbytes
            if end - digested > _STEP:
                self._digest.update(data[digested:end])
                digested = end
            key, ending = _parts_of(name)
            if not key:
                continue
            if key != current:
                current = key
                self.keys.append(key)
                sample += 1
            number = numbers.get(ending)
            if number is None:
                number = self._new_ending(ending, name, offset)
            if last[number] == sample:
                raise _at_member("a sample has two members of one name", name, offset)
            last[number] = sample
            add_sample(sample)
            add_field(number)
            add_offset(offset)
            add_nbytes(nbytes)
            add_digest(digest_of(data[offset:end]))
        self._digest.update(data[digested:])

    def _new_ending(self, ending: bytes, name: bytes, offset: int) -> int:
        lowered = ending.decode("utf-8", "replace").lower()
        if not is_field(lowered):
            raise _at_member(f"the field of a member cannot be called {lowered[:100]!r}", name, offset)
        if lowered not in self._names:
            if len(self._names) == MOST_FIELDS:
                raise _at_member(f"samples have more than {MOST_FIELDS} fields in all", name, offset)
            self._names.append(lowered)
            self._last.append(-1)
        number = self._numbers[ending] = self._names.index(lowered)
        return number

    def table(self) -> Table:
        samples, count = len(self.keys), len(self._names)
        refuse_large(2 * samples * count * ENTRY_NBYTES)
        names = sorted(self._names)
        places = np.array([names.index(name) for name in self._names], np.intp)
        entries = np.zeros((samples, count, 3), "<u8")
        entries[..., 1] = ABSENT
        at = (np.frombuffer(self._sample, np.uint32), places[np.frombuffer(self._field, np.uint8)])
        for part, values in enumerate((self._offset, self._nbytes, self._member_digest)):
            entries[(*at, part)] = np.frombuffer(values, np.uint64)
        columns: dict[str, NDArray[np.int64]] = {}
        fields = []
        for number, name in enumerate(names):
            column = _column(self._data, name, entries[:, number])
            if column is not None:
                columns[name] = column
                fields.append(Field(name, "<i8", flags=COLUMN))
            else:
                fields.append(_array_field(self._data, name, entries[:, number]))
        return Table(
            samples, tuple(fields), self._data.nbytes, self._digest.digest(), entries, columns,
            np.cumsum([len(key) for key in self.keys]).astype("<u8"), memoryview(b"".join(self.keys)),
        )  # fmt: skip


def _parts_of(name: bytes) -> tuple[bytes, bytes]:
    """Key and field, in letters of any case; no key where webdataset passes over it."""
    if b"/" not in name and not name.startswith(b"__"):
        key, dot, ending = name.partition(b".")  # what the expression finds, in a third of the time
        return (key, ending) if dot else (b"", b"")
    parts = _NAME.match(name)
    return (b"", b"") if parts is None or is_hidden(name) else (parts[1], parts[2])


def _at_member(text: str, name: bytes, offset: int) -> ShardError:
    return ShardError.at(f"{text}: {name[:200].decode(errors='replace')!r}", offset)


def _column(data: memoryview, name: str, entries: NDArray[np.uint64]) -> NDArray[np.int64] | None:
    """The numbers of a field, if it is one of those that have numbers, and each sample has one in plain digits."""
    if name.rpartition(".")[2] not in _NUMERIC or int(entries[:, 1].max()) > _MOST_NUMBER_NBYTES:
        return None
    numbers = np.empty(len(entries), "<i8")
    for row, (offset, nbytes, _) in enumerate(entries.tolist()):
        digits = bytes(data[offset : offset + nbytes])
        if _DIGITS.fullmatch(digits) is None:
            return None
        numbers[row] = int(digits)
    return numbers


def _array_field(data: memoryview, name: str, entries: NDArray[np.uint64]) -> Field:
    """The field as one of arrays that are alike in all samples, if it is one; else of bytes."""
    field = Field(name)
    there = entries[entries[:, 1] != ABSENT]
    if name.rpartition(".")[2] != "npy" or (there[:, 1] != there[0, 1]).any():
        return field
    begin, nbytes = map(int, there[0, :2])
    told = head_of(bytes(data[begin : begin + min(nbytes, 4096)]))
    if told is None or len(told.shape) > MOST_DIMENSIONS or max(told.shape, default=0) >> 32:
        return field
    alike = Field(name, told.dtype, told.shape, told.nbytes)
    if alike.skip + (alike.array_nbytes or 0) != nbytes:
        return field
    head = bytes(data[begin : begin + alike.skip])
    starts = there[:, 0].tolist()
    return alike if all(bytes(data[at : at + alike.skip]) == head for at in starts) else field
