"""The shards of a set, open in this process: mapped when they are first needed, with their tables.

Knows folders of this host. What is read is checked; of what is damaged the error says in which shard, where, and which
sample it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.mapping import MappedFile
from swift_loader.host.xxhash import digest_of, digest_of_parts
from swift_loader.shards.opening import read_table
from swift_loader.shards.table import ABSENT, Table

if TYPE_CHECKING:
    from swift_loader.host.mapping import Bytes
    from swift_loader.shards.catalog import Shard
    from swift_loader.shards.folder import Folder
    from swift_loader.shards.sets import OpenedSet

#: So many are open at once: each takes two descriptors (a mapping has one of its own).
_MOST_OPEN = 128


class OpenShard:
    """A file of samples, and its table."""

    def __init__(self, store: Folder, shard: Shard, tables: Folder) -> None:
        self.name = shard.name
        self.where = store.where
        try:
            self.file = MappedFile(store.open(shard.name))
            if self.file.nbytes != shard.object_nbytes:
                text = "the shard is not the one that is in the catalog"
                raise ShardError.at(text, None, shard.object_nbytes, self.file.nbytes)
            self.table: Table = read_table(store, shard, tables)
        except OSError as error:
            raise self._within(ShardError(f"the shard cannot be read: {error.strerror}")) from error
        except ShardError as error:
            raise self._within(error) from None

    def read(self, sample: int, field: int) -> Any:
        """A field's bytes as an array, checked, in memory of their own; None where the sample has no such field."""
        offset, nbytes, digest = self.table.entries[sample, field].tolist()
        if nbytes == ABSENT:
            return None
        data = self._part(offset, nbytes, sample)
        if digest_of(data) != digest:
            raise self._damaged(sample, offset)
        return data

    def read_arrays(self, samples: Any, field: int, rows: Any, at: list[int]) -> None:
        """Puts the arrays of a field, which all are of one size, to their rows, and checks them there.

        Args:
            samples: their numbers, as an array.
            field: which.
            rows: bytes, of two dimensions.
            at: the row of each sample.
        """
        entries = self.table.entries[samples, field]
        offsets, sizes = entries[:, 0].astype(np.int64), entries[:, 1]
        if (missing := np.flatnonzero(sizes == ABSENT)).size:
            raise self.told(
                ShardError(f"the sample has no {self.table.fields[field].name!r}"), int(samples[missing[0]])
            )
        size, head_nbytes = rows.shape[1], self.table.fields[field].skip
        begins = offsets + head_nbytes
        are_there = self.file.are_there(offsets, begins + size)
        data, copy = self.file.data, self._copy
        for row, begin, digest, sample in zip(
            at, begins.tolist(), entries[:, 2].tolist(), samples.tolist(), strict=True
        ):
            target = rows[row]
            if are_there:
                target[...] = data[begin : begin + size]
            else:
                copy(begin, target, sample)
            if head_nbytes:
                found = digest_of_parts((self._part(begin - head_nbytes, head_nbytes, sample), target), 0)
            else:
                found = digest_of(target)
            if found != digest:
                raise self._damaged(sample, begin - head_nbytes)

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

    def __getitem__(self, number: int) -> OpenShard:
        """One of them; raises `ShardError` if it is damaged, not there, or not the one that is in the catalog."""
        with self._lock:
            shard = self._open.get(number)
            if shard is None:
                shard = self._open[number] = self._opened(number)
                if len(self._open) > _MOST_OPEN:
                    self._open.popitem(last=False)  # closed when nobody reads from it any more
            else:
                self._open.move_to_end(number)
            return shard

    def _opened(self, number: int) -> OpenShard:
        shards, tables, catalog = self._set
        return OpenShard(shards, catalog.shard(number), tables)
