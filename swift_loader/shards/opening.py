"""Catalogs, footers and tables out of a store, all of them checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from swift_loader.errors import NoRoom, ShardError
from swift_loader.host.memory import free_nbytes
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.catalog import Catalog, Kind, Shard
from swift_loader.shards.store import Store
from swift_loader.shards.table import FOOTER_FROM_END, FOOTER_MAGIC, FOOTER_NBYTES, Footer, Table
from swift_loader.shards.tar import BLOCK

T = TypeVar("T")
#: One read of so many bytes at the end of a shard has its footer and, for some 800 samples of two fields, its table.
SUFFIX_NBYTES = 64 << 10
#: From here on it is looked at how much memory there is.
_LARGE_NBYTES = 64 << 20


class Described(NamedTuple):
    """A shard that tells itself what it is."""

    shard: Shard
    table: Table


def read_catalog(store: Store, generation: int | None = None) -> Catalog:
    """The catalog of a set: the newest that its `index.swift` knows, or that of a generation.

    Raises:
        FileNotFoundError: if there is none.
        ShardError: if it is damaged.
    """
    name = catalogs.NAME if generation is None else catalogs.generation_name(generation)
    try:
        catalog = _twice(lambda: Catalog.read(store.whole(name)))
    except ShardError as error:
        raise error.within(name, store.where) from None
    if generation not in (None, catalog.generation):
        other = ShardError.at("the catalog is of another generation", 16, generation, catalog.generation)
        raise other.within(name, store.where)
    return catalog


def _twice(read: Callable[[], T]) -> T:
    """What is damaged is read once more: it may have been damaged on its way."""
    try:
        return read()
    except ShardError:
        return read()


def newest_generation(store: Store) -> int:
    """The number of the newest generation by its name; 0 if there is none."""
    newest = 0
    for found in store.listed("index-"):
        digits = found.name.removeprefix("index-").removesuffix(".swift")
        if digits.isascii() and digits.isdigit() and found.name == catalogs.generation_name(int(digits)):
            newest = max(newest, int(digits))
    return newest


def read_table(store: Store, shard: Shard, tables: Store | None = None) -> Table:
    """The table of a shard of a catalog; ``tables`` has those that lie beside shards, if their own store has not.

    Raises:
        FileNotFoundError: if the shard is not there.
        ShardError: if table and catalog do not agree, or the table is damaged.
    """
    name, room = shard.name, shard.object_nbytes
    if shard.kind == Kind.TAR:
        room = shard.table_offset - BLOCK
    elif not shard.table_nbytes:
        raise ShardError("the shard has no table").within(name, store.where)
    else:
        name += ".swift"
        store = tables or store
    try:
        refuse_large(shard.table_nbytes)
        where = (name, shard.table_offset, shard.table_nbytes)
        table = _twice(lambda: Table.read(store.read(*where), room, shard.table_digest))
        if table.samples != shard.samples:
            raise ShardError.at("the catalog counts other samples", None, shard.samples, table.samples)
    except ShardError as error:
        raise error.within(name, store.where) from None
    return table


def has_footer(store: Store, name: str, nbytes: int) -> bool:
    """Whether a file ends as a shard of ours does, whole or damaged."""
    begin = nbytes - FOOTER_FROM_END
    return begin >= BLOCK and bytes(memoryview(store.read(name, begin, len(FOOTER_MAGIC)))) == FOOTER_MAGIC


def describe(store: Store, name: str, nbytes: int) -> Described:
    """What a shard of ours says of itself.

    Raises:
        ShardError: if it is none, or damaged.
    """
    try:
        if nbytes < FOOTER_FROM_END + BLOCK:
            raise ShardError.at("there is no footer: the file is too small to be a shard", None, None, nbytes)
        begin = max(0, nbytes - SUFFIX_NBYTES)
        end = memoryview(store.read(name, begin, nbytes - begin))
        at = end.nbytes - FOOTER_FROM_END
        footer = Footer.read(bytes(end[at : at + FOOTER_NBYTES]), nbytes)
        refuse_large(footer.table_nbytes)
        if footer.table_offset >= begin:
            data = end[footer.table_offset - begin : at]
        else:
            data = memoryview(store.read(name, footer.table_offset, footer.table_nbytes))
        table = Table.read(data, footer.table_offset - BLOCK, footer.table_digest)
        if (table.samples, table.payload_nbytes) != (footer.samples, footer.table_offset - BLOCK):
            raise ShardError.at("footer and table do not agree", None, footer.samples, table.samples)
    except ShardError as error:
        raise error.within(name, store.where) from None
    numbers = (footer.table_offset, footer.table_nbytes, footer.table_digest)
    return Described(Shard(name, table.samples, nbytes, *numbers, table.payload_digest), table)


def refuse_large(nbytes: int) -> None:
    """Raises `NoRoom` at a table that would take more than a quarter of the memory that is free."""
    if nbytes > _LARGE_NBYTES and nbytes > (allowed := free_nbytes() // 4):
        raise NoRoom.of(f"a table of {nbytes >> 20:,} MB takes over a quarter of the free memory", nbytes, allowed)
