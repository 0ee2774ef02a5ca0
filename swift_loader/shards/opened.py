"""The shards of a set, open in this process: mapped when they are first needed, with their tables.

What is read is checked; of what is damaged the error says in which shard, where, and which
sample it is.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.mapping import MappedFile
from swift_loader.host.xxhash import digest_of, digest_of_parts, digests_of_rows
from swift_loader.shards.encode import npy_head
from swift_loader.shards.folder import Folder
from swift_loader.shards.opening import read_table
from swift_loader.shards.remote import RemoteFile
from swift_loader.shards.rows import RowReader
from swift_loader.shards.table import ABSENT, UNCHECKED, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.host.mapping import Bytes
    from swift_loader.shards.fields import Field
    from swift_loader.shards.sets import OpenedSet

#: So many are open at once: each takes two descriptors (a mapping has one of its own).
_MOST_OPEN = 128
#: Of those that are elsewhere, only the table is here.
_MOST_REMOTE = 512
#: Arrays up to this size are read many at once.
_SMALL_NBYTES = 4096
_BLOCK = 512


class OpenShard:
    """A file of samples, and its table."""

    def __init__(self, opened: OpenedSet, number: int, table: Table | None = None) -> None:
        store, tables, catalog, layout, remote = opened
        shard = catalog.shard(number)
        self.name = shard.name
        self.where = store.where
        try:
            self.file: MappedFile | RemoteFile
            if remote is not None:
                self.file = RemoteFile(remote, number, shard.object_nbytes)
            else:
                assert isinstance(store, Folder)
                self.file = MappedFile(store.open(shard.name))
            if self.file.nbytes != shard.object_nbytes:
                text = "the shard is not the one that is in the catalog"
                raise ShardError.at(text, None, shard.object_nbytes, self.file.nbytes)
            if layout is not None and not shard.table_nbytes:
                self.table: Table = layout.table(self.file, shard.samples, int(catalog.bounds[number]))
            else:
                self.table = table or read_table(store, shard, tables)
        except OSError as error:
            raise self._within(ShardError(f"the shard cannot be read: {error.strerror}")) from error
        except ShardError as error:
            raise self._within(error) from None
        self._has_checksums = not self.table.flags & UNCHECKED
        self._rows = None if self.table.rows is None else RowReader(cast(MappedFile, self.file), self.table)

    def read(self, sample: int, field: int) -> Any:
        """A field's bytes as an array, checked, in memory of their own; None where the sample has no such field.

        Of a row, those of its array alone; of a number that stands in the table alone, its text.
        """
        one = self.table.fields[field]
        if self._rows is not None:
            if one.has_column:
                return self._number(sample, one)
            return self.read_rows(np.array([sample]))[0, one.skip : one.skip + (one.array_nbytes or 0)]
        offset, nbytes, digest = self.table.entries[sample, field].tolist()
        if nbytes == ABSENT:
            return self._number(sample, one) if one.has_column else None
        data = self._part(offset, nbytes, sample)
        if self._has_checksums and digest_of(data) != digest:
            if self.file.again(offset, offset + nbytes):
                data = self._part(offset, nbytes, sample)
            if digest_of(data) != digest:
                raise self._damaged(sample, offset)
        return data

    def read_file(self, sample: int, field: int) -> Any:
        """The same as files of that name are: arrays of rows, which have no head, get that of .npy."""
        data, one = self.read(sample, field), self.table.fields[field]
        if self._rows is None or one.has_column or one.name.rpartition(".")[2] != "npy":
            return data
        return np.concatenate((np.frombuffer(npy_head(np.dtype(one.dtype), one.shape), np.uint8), data))

    def _number(self, sample: int, field: Field) -> Any:
        number = self.table.columns[field.name][sample].item()
        return np.frombuffer(json.dumps(number).encode(), np.uint8)

    def read_arrays(self, samples: Any, field: int, rows: Any, at: Sequence[int]) -> None:
        """Puts the arrays of a field, which all are of one size, to their rows, and checks them there.

        Args:
            samples: their numbers, as an array.
            field: which.
            rows: bytes, of two dimensions.
            at: the row of each sample.
        """
        if self._rows is not None:
            self._read_fields_of_rows(samples, self.table.fields[field], rows, at)
            return
        entries = self.table.entries[samples, field]
        offsets, sizes = entries[:, 0].astype(np.int64), entries[:, 1]
        if (missing := np.flatnonzero(sizes == ABSENT)).size:
            raise self.told(
                ShardError(f"the sample has no {self.table.fields[field].name!r}"), int(samples[missing[0]])
            )
        size, head_nbytes = rows.shape[1], self.table.fields[field].skip
        if head_nbytes + size <= _SMALL_NBYTES:
            # What is wrong with those that are left is seen one by one.
            left = self._gather(offsets, entries[:, 2], head_nbytes, rows, at)
            samples, offsets, entries = samples[left], offsets[left], entries[left]
            at = [at[one] for one in left.tolist()]
        begins = offsets + head_nbytes
        are_there = self.file.are_there(offsets, begins + size)
        data, copy, has_checksums = self.file.data, self._copy, self._has_checksums
        for row, begin, digest, sample in zip(
            at, begins.tolist(), entries[:, 2].tolist(), samples.tolist(), strict=True
        ):
            target = rows[row]
            if are_there:
                target[...] = data[begin : begin + size]
            else:
                copy(begin, target, sample)
            if has_checksums and self._digest(begin, head_nbytes, target, sample) != digest:
                if self.file.again(begin - head_nbytes, begin + size):
                    copy(begin, target, sample)
                if self._digest(begin, head_nbytes, target, sample) != digest:
                    raise self._damaged(sample, begin - head_nbytes)

    def _gather(self, offsets: Any, digests: Any, head_nbytes: int, rows: Any, at: Sequence[int]) -> NDArray[np.int64]:
        """Puts small arrays to their rows all at once, as far as they are right; tells which are not.

        Members of a tar begin at whole blocks, so that they are gathered as rows of the file seen as blocks: a third of
        what it takes to copy and check each by itself.
        """
        everything = np.arange(len(offsets))
        size = head_nbytes + rows.shape[1]
        count = -(-size // _BLOCK)
        is_mapped = isinstance(self.file, MappedFile)  # what is elsewhere lies in pieces
        if not is_mapped or (offsets % _BLOCK).any() or not self.file.are_there(offsets, offsets + count * _BLOCK):
            return everything
        blocks = self.file.data[: len(self.file.data) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
        wanted = (offsets // _BLOCK)[:, None] + np.arange(count)
        found = blocks.take(wanted, axis=0, mode="clip").reshape(len(offsets), -1)[:, :size]
        rows[at] = found[:, head_nbytes:]
        if not self._has_checksums:
            return everything[:0]
        return np.flatnonzero(digests_of_rows(np.ascontiguousarray(found)) != digests)

    def _digest(self, begin: int, head_nbytes: int, target: Any, sample: int) -> int:
        if not head_nbytes:
            return digest_of(target)
        return digest_of_parts((self._part(begin - head_nbytes, head_nbytes, sample), target), 0)

    def _read_rows(self, samples: Any, rows: Any) -> None:
        assert self._rows is not None
        try:
            damaged = self._rows.read(samples, rows)
            if damaged is not None and self._read_again(int(samples[damaged])):
                damaged = self._rows.read(samples, rows)
        except OSError as error:
            raise self._within(ShardError(f"rows cannot be read: {error.strerror}")) from error
        if damaged is not None:
            number = int(samples[damaged])
            assert self.table.rows is not None
            raise self._damaged(number, self.table.rows.offset + number * self.table.rows.nbytes)

    def _read_again(self, number: int) -> bool:
        assert self.table.rows is not None
        begin = self.table.rows.offset + number * self.table.rows.nbytes
        return self.file.again(begin, begin + self.table.rows.nbytes)

    def read_rows(self, samples: Any) -> Any:
        """Whole rows, where samples are rows."""
        assert self._rows is not None
        whole = np.empty((len(samples), self._rows.nbytes), np.uint8)
        self._read_rows(samples, whole)
        return whole

    def _read_fields_of_rows(self, samples: Any, field: Field, rows: Any, at: Sequence[int]) -> None:
        assert self._rows is not None
        lies_so = rows.shape[1] == self._rows.nbytes and len(at) == len(rows) and list(at) == list(range(len(rows)))
        if lies_so and rows.flags.c_contiguous:
            self._read_rows(samples, rows)
        else:
            rows[at] = self.read_rows(samples)[:, field.skip : field.skip + rows.shape[1]]

    def column(self, name: str) -> Any:
        """A number of each sample: from the table, or where all are arrays of one number, from the samples.

        Raises:
            ConfigError: if there are no such numbers.
        """
        table = self.table
        if name in table.columns:
            return table.columns[name]
        numbers = [field.name for field in table.fields if field.dtype and field.shape == ()]
        if name not in numbers:
            there = ", ".join(numbers) or "none"
            raise ConfigError(f"{self.where}/{self.name} has no column {name!r}: there is {there}")
        field = table.field_numbers[name]
        column = np.empty(table.samples, table.fields[field].dtype)
        self.read_arrays(
            np.arange(table.samples), field, column.view(np.uint8).reshape(table.samples, -1), range(table.samples)
        )
        return column

    def told(self, error: ShardError, sample: int) -> ShardError:
        """The same error, which now knows the sample and where it is."""
        return self._within(error.within(key=self.table.key(sample)))

    def _within(self, error: ShardError) -> ShardError:
        return error.within(shard=self.name, set=self.where)

    def _damaged(self, sample: int, offset: int) -> ShardError:
        return self.told(ShardError.at("a sample is damaged: its checksum is wrong", offset), sample)

    def _part(self, offset: int, nbytes: int, sample: int) -> Any:
        part = np.empty(nbytes, np.uint8)
        self._copy(offset, part, sample)
        return part

    def _copy(self, offset: int, target: Bytes, sample: int) -> None:
        try:
            self.file.copy(offset, target)
        except OSError as error:
            raise self.told(ShardError.at(f"a sample cannot be read: {error.strerror}", offset), sample) from error


class OpenShards:
    """Those of a set that are open; several threads may ask for them."""

    def __init__(self, opened: OpenedSet) -> None:
        self._set = opened
        self._open: OrderedDict[int, OpenShard] = OrderedDict()
        self._lock = threading.Lock()

    def bring(self, numbers: Sequence[int]) -> None:
        """Reads the tables of all these shards at the same time, where they are elsewhere and not open."""
        remote = self._set.remote
        if remote is None:
            return
        with self._lock:
            missing = [number for number in numbers if number not in self._open]
        if len(missing) < 2:
            return
        tables = zip(missing, remote.tables(missing, self._set), strict=True)
        opened = {number: OpenShard(self._set, number, table) for number, table in tables if table is not None}
        with self._lock:
            self._open.update(opened)

    def __getitem__(self, number: int) -> OpenShard:
        """One of them; raises `ShardError` if it is damaged, not there, or not the one that is in the catalog."""
        with self._lock:
            shard = self._open.get(number)
            if shard is None:
                shard = self._open[number] = OpenShard(self._set, number)
                while len(self._open) > (_MOST_OPEN if self._set.remote is None else _MOST_REMOTE):
                    self._open.popitem(last=False)  # closed when nobody reads from it any more
            else:
                self._open.move_to_end(number)
            return shard
