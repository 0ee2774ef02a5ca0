"""The arrays of a batch out of all the shards that its samples are in, at once.

A batch of a shuffled epoch has a few samples of each of many shards. Shard by shard, what a small sample costs is
mostly what is done once for each shard. So it is known here where in memory each open shard has its table and its
samples: then those of a batch are found, copied and checked by a handful of calls, whichever shards they are of.

It reads only where all is as it should be. Anything else (a page that is not there, a checksum that is wrong, a shard
whose arrays are others) is left to who reads shard by shard, and says what it is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from swift_loader.host.addresses import are_known, bytes_at, flags_at, items_at, words_at
from swift_loader.host.mapping import EXTENT_NBYTES, PAGE_NBYTES, MappedFile
from swift_loader.host.xxhash import SMALL_NBYTES, digest_of, digest_of_parts, digests_of_items
from swift_loader.shards.table import ABSENT, ENTRY_NBYTES, UNCHECKED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.shards.fields import Field
    from swift_loader.shards.opened import OpenShard, OpenShards
    from swift_loader.shards.wishes import Wishes

    I64 = NDArray[np.int64]

#: So many shards are known at a time, no more than are open.
_MOST_KNOWN = 128


class _Part(NamedTuple):
    """What is wanted of a sample, the same in all shards that are known."""

    number: int
    field: Field
    has_checksums: bool
    row_nbytes: int = 0
    """Of all arrays of a sample together, where samples are rows."""


class Together:
    """Reads from all open shards of a set; several threads may.

    Args:
        shards: Those that are open.
        wishes: What is wanted of their samples.
    """

    def __init__(self, shards: OpenShards, wishes: Wishes) -> None:
        self._shards, self._wishes = shards, wishes
        self._lock = threading.Lock()
        self._parts: list[_Part] | None = None
        self._is_usual = True
        self._forget()

    def _forget(self) -> None:
        self._known: dict[int, int] = {}
        self._held: list[OpenShard] = []
        self._places = np.zeros((4, _MOST_KNOWN), np.int64)
        """Of each shard's file: its first byte, what is known of its extents, its last page's end, its first row."""
        self._tables = np.zeros((len(self._parts or ()), 2, _MOST_KNOWN), np.int64)
        """Of each part: where its first entry is (or number, of a column), and how far the next one is from there."""

    def read_into(self, which: I64, inside: I64, rows: Any) -> bool:
        """Puts samples to their rows in a batch; whether it did. If not, what stands in the rows means nothing.

        Args:
            which: The shard of each.
            inside: Its number in there.
            rows: The batch, one row for each sample in their order.
        """
        numbers, order = np.unique(which, return_inverse=True)
        with self._lock:
            if not self._is_usual or len(numbers) > _MOST_KNOWN:
                return False
            known = self._known_as(numbers.tolist())
            if known is None or self._parts is None:
                return False
            at = known[order]
            places, tables, parts = self._places[:, at], self._tables[:, :, at], self._parts
            held = self._held[:]  # they stay mapped as long as this is at it
        columns = self._wishes.of(held[0].table).columns_of(rows)
        reading = _Reading(places, held, at, inside)
        for part, (first, step), column in zip(parts, tables, columns, strict=True):
            entries = first + inside * step
            if not reading.put(part, entries, column):
                return False
        return True

    def _known_as(self, numbers: Sequence[int]) -> I64 | None:
        """Under which number each of these shards is known here; None if one is unlike the others."""
        shards = [self._shards[number] for number in numbers]
        places = [self._known.get(number, -1) for number in numbers]
        missing = sum(place < 0 or self._held[place] is not shard for place, shard in zip(places, shards, strict=True))
        if not missing:
            return np.array(places)
        if len(self._held) + missing > _MOST_KNOWN:
            self._forget()
        known = []
        for number, shard in zip(numbers, shards, strict=True):
            place = self._known.get(number, -1)
            if place < 0 or self._held[place] is not shard:
                if not self._learn(number, shard):
                    self._is_usual = False
                    return None
                place = self._known[number]
            known.append(place)
        return np.array(known)

    def _learn(self, number: int, shard: OpenShard) -> bool:
        """Notes where all of a shard is; whether its samples can be read so."""
        table, file = shard.table, shard.file
        granted = self._wishes.of(table)
        if not granted.are_rows or not isinstance(file, MappedFile):
            return False
        has_checksums, rows = not table.flags & UNCHECKED, table.rows
        row_nbytes = 0 if rows is None else rows.nbytes
        parts = [_Part(way.number, way.field, has_checksums, row_nbytes) for way in granted.only_ways]
        if self._parts is None:
            self._parts = parts
            self._forget()
        if self._parts != parts:
            return False
        place = len(self._held)
        for (field, one, *_), told in zip(parts, self._tables, strict=True):
            column = table.columns[one.name] if one.has_column else table.entries[:, 0 if rows else field]
            if not one.has_column and rows is None and bool((column[:, 1] == ABSENT).any()):
                return False
            step = 8 if one.has_column or rows else len(table.fields) * ENTRY_NBYTES
            first = column.ctypes.data
            if first % 8 or column.strides[0] != step or not are_known(np.array([first]), step * table.samples):
                return False
            told[:, place] = first, step
        end = -(-file.nbytes // PAGE_NBYTES) * PAGE_NBYTES
        first, seen = file.data.ctypes.data, file.believed().ctypes.data
        if not are_known(np.array([first, seen]), end):
            return False
        self._places[:, place] = first, seen, end, 0 if rows is None else rows.offset
        self._known[number] = place
        self._held.append(shard)
        return True


class _Reading:
    """One batch: where the file of each sample is, what is known of its pages."""

    def __init__(self, places: I64, held: Sequence[OpenShard], at: I64, inside: I64) -> None:
        self._data, self._seen, self._end, self._first_row = places
        self._held, self._at, self._inside = held, at, inside
        for number in set(at.tolist()):
            _mapped(held[number]).believed()  # what was seen too long ago is forgotten

    def put(self, part: _Part, entries: I64, column: Any) -> bool:
        """Puts one part of all samples to its rows."""
        field = part.field
        if field.has_column:
            column[...] = words_at(entries).view(field.dtype)
            return True
        if (field.shape, np.dtype(field.dtype)) != (column.shape[1:], column.dtype):
            return False
        rows = column.reshape(len(column), -1).view(np.uint8)
        nbytes = part.row_nbytes or field.skip + rows.shape[1]
        if part.row_nbytes:
            offsets, digests = self._first_row + self._inside * nbytes, words_at(entries)
        else:
            offsets, digests = words_at(entries).view(np.int64), words_at(entries + 16)
        if not self._are_there(offsets, nbytes):
            return False
        whole = _Whole(self._data + offsets, nbytes, digests if part.has_checksums else None)
        if nbytes <= SMALL_NBYTES:
            return _gathered(whole, field.skip, rows)
        return nbytes == field.skip + rows.shape[1] and _one_by_one(whole, field.skip, rows)

    def _are_there(self, offsets: I64, nbytes: int) -> bool:
        """Whether the pages of all may be touched: see `host.mapping`."""
        ends = offsets + nbytes
        if bool((ends > self._end).any()):
            return False
        first, last = offsets // EXTENT_NBYTES, (ends - 1) // EXTENT_NBYTES
        if int((last - first).max()) > 1:
            # Some of them have extents of their own between the first and the last one.
            return all(
                _mapped(self._held[at]).are_there(offsets[row : row + 1], ends[row : row + 1])
                for row, at in enumerate(self._at.tolist())
            )
        return self._were_seen(first) and self._were_seen(last)

    def _were_seen(self, extents: I64) -> bool:
        seen = flags_at(self._seen + extents)
        if 0 not in seen.tobytes():
            return True
        missing = np.flatnonzero(seen == 0)
        asked = set(zip(self._at[missing].tolist(), extents[missing].tolist(), strict=True))
        return all(_mapped(self._held[at]).look(extent) for at, extent in sorted(asked))


def _mapped(shard: OpenShard) -> MappedFile:
    assert isinstance(shard.file, MappedFile)
    return shard.file


class _Whole(NamedTuple):
    """What was digested of each sample: its array with the head before it, or all arrays of its row."""

    addresses: I64
    nbytes: int
    digests: NDArray[np.uint64] | None


def _gathered(whole: _Whole, skip: int, rows: Any) -> bool:
    """Small ones, all by one call; whether they are right."""
    found = items_at(whole.addresses, whole.nbytes)
    rows[...] = found.view(np.uint8).reshape(len(rows), -1)[:, skip : skip + rows.shape[1]]
    return whole.digests is None or bool((digests_of_items(found) == whole.digests).all())


def _one_by_one(whole: _Whole, skip: int, rows: Any) -> bool:
    """Large ones, each checked while it is in the core's own cache; whether they are right."""
    nbytes = rows.shape[1]
    if whole.digests is None:
        for row, address in zip(rows, whole.addresses.tolist(), strict=True):
            row[...] = bytes_at(address + skip, nbytes)
        return True
    for row, address, digest in zip(rows, whole.addresses.tolist(), whole.digests.tolist(), strict=True):
        row[...] = bytes_at(address + skip, nbytes)
        found = digest_of(row) if not skip else digest_of_parts((bytes_at(address, skip), row), 0)
        if found != digest:
            return False
    return True
