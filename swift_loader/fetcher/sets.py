"""A set as the fetcher knows it: its catalog, its shards' tables, and what each object was when it was first seen."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.fetcher.beside import TablesHere
from swift_loader.fetcher.network import Network, changed
from swift_loader.plan.runs import extents
from swift_loader.shards.catalog import Catalog, Kind, Shard
from swift_loader.shards.layouts import IN_PLACE, offsets_in
from swift_loader.shards.spans import span
from swift_loader.shards.table import Table
from swift_loader.shards.tar import BLOCK
from swift_loader.shards.upcoming import FREE
from swift_loader.stores import answers

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer
    from numpy.typing import NDArray

#: Tables that are remembered.
_MOST_NBYTES = 256 << 20
#: So many files' offsets are.
_MOST_OFFSETS = 256


class ShardSet:
    """One generation of a set.

    Args:
        number: Its own, the same in all processes.
        catalog: The catalog's bytes.
        network: Where the shards are.
        tables: Where the tables of shards are that have none themselves.
    """

    def __init__(self, number: int, catalog: Any, network: Network, tables: Network | TablesHere) -> None:
        self.number = number
        self.catalog = Catalog.read(catalog)
        self.network, self._tables_at = network, tables
        self._etags: dict[int, str] = {}
        self._tables: OrderedDict[int, tuple[Table, int]] = OrderedDict()
        self._tables_nbytes = 0
        self._coming: dict[int, asyncio.Task[Table]] = {}
        self._offsets: dict[int, NDArray[np.int64]] = {}
        """Of files of other libraries, which have no tables: where their samples begin."""
        rows = self.catalog.rows
        self.sample_nbytes = rows["object_nbytes"] / np.maximum(rows["count"], 1)
        """Of each shard, on average."""

    def key(self, shard: int) -> int:
        """What the page calls a shard."""
        return self.number << 32 | shard

    async def part(self, shard: int, begin: int, end: int, into: Any = None) -> Buffer:
        """Bytes of a shard, which must be the one that the catalog tells of; put ``into`` an array, if one is given.

        Raises:
            FileNotFoundError, ShardError: if they cannot be had.
        """
        name, nbytes = self.catalog.name(shard), int(self.catalog.rows[shard]["object_nbytes"])
        etag = self._etags.get(shard)
        try:
            part = await self.network.get(name, begin, end, etag, into)
        except ShardError as error:
            if answers.Kind.CHANGED.value not in str(error.args[0]):
                raise
            if not await self._is_still(shard):
                raise changed(name, self.network.objects.where, self.catalog.generation, etag, "another etag") from None
            part = await self.network.get(name, begin, end, None, into)
        if part.nbytes != nbytes:
            raise changed(name, self.network.objects.where, self.catalog.generation, nbytes, part.nbytes)
        if part.etag and not part.etag.startswith("W/"):
            self._etags.setdefault(shard, part.etag)
        return part.data

    async def _is_still(self, shard: int) -> bool:
        """Whether the object of another etag is the same shard: written once more, or an answer with a wrong etag."""
        self._etags.pop(shard, None)
        told = self.catalog.shard(shard)
        if told.kind != Kind.TAR:
            return False
        try:
            part = await self.network.get(told.name, told.table_offset, told.table_offset + told.table_nbytes)
            Table.read(memoryview(part.data), told.table_offset - BLOCK, told.table_digest)
        except ShardError:
            return False
        return part.nbytes == told.object_nbytes

    @cached_property
    def _run_ends(self) -> NDArray[np.int64]:
        rows = self.catalog.rows
        return np.cumsum(extents(rows["count"], rows["object_nbytes"]))

    def whole_run(self, first: int, count: int) -> tuple[int, int]:
        """The run that these samples are in: its first one, and how many; or the same, if they are little of it."""
        run = int(np.searchsorted(self._run_ends, first, "right"))
        begin, end = int(self._run_ends[run - 1]) if run else 0, int(self._run_ends[run])
        is_much = first + count <= end and count >= FREE.whole_share * (end - begin)
        return (begin, end - begin) if is_much else (first, count)

    async def range_of(self, first: int, count: int) -> tuple[int, int, int]:
        """The shard that these samples are in, and where they begin and end there."""
        shard = self.shard_of(first)
        place = first - int(self.catalog.bounds[shard])
        if self.is_bare(shard):
            offsets = await self._offsets_of(shard)
            return shard, int(offsets[place]), int(offsets[place + count])
        return shard, *span(await self.table(shard), place, count)

    def is_bare(self, shard: int) -> bool:
        """Whether it is a file of another library, without a table: nothing in it can be checked."""
        row = self.catalog.rows[shard]
        return int(row["kind"]) in IN_PLACE and not int(row["table_nbytes"])

    async def _offsets_of(self, shard: int) -> NDArray[np.int64]:
        found = self._offsets.get(shard)
        if found is None:
            samples = int(self.catalog.rows[shard]["count"])
            head = np.frombuffer(memoryview(await self.part(shard, 0, 4 * (samples + 2))), np.uint8)
            found = offsets_in(head, samples, int(self.catalog.rows[shard]["object_nbytes"]))
            while len(self._offsets) >= _MOST_OFFSETS:
                del self._offsets[next(iter(self._offsets))]
            self._offsets[shard] = found
        return found

    def shard_of(self, first: int) -> int:
        """The shard of a sample."""
        return int(np.searchsorted(self.catalog.bounds, first, "right")) - 1

    async def table(self, shard: int) -> Table:
        """The table of a shard."""
        if shard in self._tables:
            self._tables.move_to_end(shard)
            return self._tables[shard][0]
        coming = self._coming.get(shard)
        if coming is None:
            coming = self._coming[shard] = asyncio.ensure_future(self._read_table(shard))
            coming.add_done_callback(lambda _: self._coming.pop(shard, None))
        return await asyncio.shield(coming)

    async def _read_table(self, shard: int) -> Table:
        told: Shard = self.catalog.shard(shard)
        if told.kind == Kind.TAR:
            data, room = (
                await self.part(shard, told.table_offset, told.table_offset + told.table_nbytes),
                told.table_offset - BLOCK,
            )
        elif told.table_nbytes:
            found = await self._tables_at.get(
                told.name + ".swift", told.table_offset, told.table_offset + told.table_nbytes
            )
            data, room = found.data, told.object_nbytes
        else:
            raise ShardError("the shard has no table").within(told.name, self.network.objects.where)
        try:
            table = Table.read(memoryview(data), room, told.table_digest)
        except ShardError as error:
            raise error.within(told.name, self.network.objects.where) from None
        self._tables[shard] = table, told.table_nbytes
        self._tables_nbytes += told.table_nbytes
        while self._tables_nbytes > _MOST_NBYTES and len(self._tables) > 1:
            _, (_, nbytes) = self._tables.popitem(last=False)
            self._tables_nbytes -= nbytes
        return table
