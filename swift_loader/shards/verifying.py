"""Looks at every byte of a set: what is not as it was written is named, with its shard, its place, and its sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.xxhash import digest_of, wide_digest_of
from swift_loader.shards import catalog as catalogs
from swift_loader.shards import tar
from swift_loader.shards.catalog import Catalog, Kind, Shard
from swift_loader.shards.opening import describe, newest_generation, read_catalog, read_table
from swift_loader.shards.row_writer import front_of
from swift_loader.shards.sets import is_pattern, open_set
from swift_loader.shards.store import Store, store_at
from swift_loader.shards.table import ABSENT, FOOTER_NBYTES, MEMBER, Table

if TYPE_CHECKING:
    from swift_loader.stores.client import Client


@dataclass(frozen=True, slots=True)
class Damage:
    """A place of a set that is not as it was written."""

    shard: str
    """Or the catalog's name."""
    offset: int | None
    """Where in it; None where all of it is missing."""
    key: str | None
    """The sample's, where it is one's."""
    what: str


class Verified(NamedTuple):
    """How far it is."""

    shards: int
    total: int
    samples: int
    nbytes: int
    """What the shards take that were looked at."""
    damages: int


def verify(
    where: object,
    generation: int | None = None,
    progress: Callable[[Verified], object] | None = None,
    *,
    index: object = None,
    share: float = 1.0,
    client: Client | None = None,
) -> list[Damage]:
    """All damage of a set; nothing where each byte is as it was written.

    Args:
        where: The set's folder, its address or its `Store`, or a pattern of shards that have tables.
        generation: Which generation; by default the newest.
        progress: Called with a `Verified` after each shard.
        index: The folder of the catalog and the tables, where they are not beside the shards.
        client: Which server an address is of, and who is let in (`make_client`); else the environment says.
        share: Below 1, so many of the samples of each shard, chosen by chance, and no byte between them.

    Raises:
        ConfigError: if an argument is wrong.
        FileNotFoundError: if there is no set.
    """
    if not 0 < share <= 1:
        raise ConfigError(f"share is above 0 and at most 1, not {share!r}")
    opened, found = _opened(where, generation, index, client)
    if opened is None:
        return found
    looking = _Looking(opened.shards, opened.tables, share)
    count, samples, nbytes = len(opened.catalog.rows), 0, 0
    for number in range(count):
        shard = opened.catalog.shard(number)
        try:
            found += looking.damage_of(shard)
        except FileNotFoundError:
            found.append(Damage(shard.name, None, None, "it is missing"))
        samples, nbytes = samples + shard.samples, nbytes + shard.object_nbytes
        if progress is not None:
            progress(Verified(number + 1, count, samples, nbytes, len(found)))
    return found


class _Opened(NamedTuple):
    shards: Store
    tables: Store
    catalog: Catalog


def _opened(
    where: object, generation: int | None, index: object, client: Client | None
) -> tuple[_Opened | None, list[Damage]]:
    if isinstance(where, str) and is_pattern(where):
        there = open_set(where, generation, None if index is None else str(index))
        return _Opened(there.shards, there.tables, there.catalog), []
    store: Store = where if isinstance(where, Store) else store_at(where, client=client)
    tables = store if index is None else store_at(index, client=client)
    catalog, found = _catalog(tables, generation)
    return None if catalog is None else _Opened(store, tables, catalog), found


def _catalog(store: Store, generation: int | None) -> tuple[Catalog | None, list[Damage]]:
    """The catalog, by any name under which it is whole."""
    newest = generation or newest_generation(store)
    found, catalog = [], None
    names = [(catalogs.NAME, None)] if generation is None else []
    for name, number in [*names, *([(catalogs.generation_name(newest), newest)] if newest else [])]:
        try:
            catalog = read_catalog(store, number)
        except ShardError as error:
            found.append(Damage(name, error.offset, None, str(error)))
        except FileNotFoundError:
            if not newest:
                raise
            found.append(Damage(name, None, None, "it is missing"))
    return catalog, found


class _Looking(NamedTuple):
    """How shards are looked at."""

    store: Store
    tables: Store
    share: float

    def damage_of(self, shard: Shard) -> list[Damage]:
        if shard.kind != Kind.TAR and not shard.table_nbytes:
            return [Damage(shard.name, None, None, "it has no checksums that it could be compared with")]
        nbytes = self.store.nbytes(shard.name)
        if nbytes != shard.object_nbytes:
            what = f"it has {nbytes} bytes instead of {shard.object_nbytes}"
            return [Damage(shard.name, min(nbytes, shard.object_nbytes), None, what)]
        data = memoryview(self.store.whole(shard.name))
        return self._of_tar(data, shard) if shard.kind == Kind.TAR else self._of_foreign(data, shard)

    def _of_tar(self, data: memoryview, shard: Shard) -> list[Damage]:
        try:
            line, table = describe(self.store, shard.name, data.nbytes)
        except ShardError as error:
            return [Damage(shard.name, shard.table_offset, None, str(error)), *_payload_alone(data, shard)]
        found = []
        if line != shard:
            found.append(Damage(shard.name, shard.table_offset, None, "table and catalog do not agree"))
        samples = self._samples(data, shard.name, table)
        is_all = self.share == 1
        if samples or (is_all and wide_digest_of(data[: table.payload_nbytes]) != table.payload_digest):
            found += samples + (list(_between(data, shard.name, table)) if is_all else [])
        return found + _behind(data, shard)

    def _of_foreign(self, data: memoryview, shard: Shard) -> list[Damage]:
        """One whose table lies beside it. What is between its samples is another writer's: only the whole is known."""
        try:
            table = read_table(self.store, shard, self.tables)
        except ShardError as error:
            return [Damage(f"{shard.name}.swift", error.offset, None, str(error))]
        except FileNotFoundError:
            return [Damage(f"{shard.name}.swift", None, None, "it is missing")]
        found = self._samples(data, shard.name, table)
        if not found and self.share == 1 and wide_digest_of(data) != table.payload_digest:
            found.append(Damage(shard.name, None, None, "it is damaged, in what lies between the samples"))
        return found

    def _samples(self, data: memoryview, name: str, table: Table) -> list[Damage]:
        look = _samples if table.rows is None else _rows
        return list(look(data, name, table, _chosen(table.samples, self.share)))


def _chosen(count: int, share: float) -> list[int]:
    """Numbers of samples, in order."""
    if share == 1:
        return list(range(count))
    chosen = np.random.default_rng().choice(count, max(1, round(count * share)), replace=False, shuffle=False)
    return list(map(int, np.sort(chosen)))


def _payload_alone(data: memoryview, shard: Shard) -> list[Damage]:
    """Of a shard whose table is lost: whether its samples are too."""
    if wide_digest_of(data[: shard.table_offset - tar.BLOCK]) == shard.payload_digest:
        return []
    return [Damage(shard.name, 0, None, "the samples' part of it is damaged too")]


def _samples(data: memoryview, name: str, table: Table, numbers: list[int]) -> Iterator[Damage]:
    fields = table.fields
    for number, entries in zip(numbers, table.entries[numbers].tolist(), strict=True):
        for field, (offset, nbytes, digest) in zip(fields, entries, strict=True):
            if nbytes != ABSENT and digest_of(data[offset : offset + nbytes]) != digest:
                yield Damage(name, offset, table.key(number), f"field {field.name!r} is damaged")


def _rows(data: memoryview, name: str, table: Table, numbers: list[int]) -> Iterator[Damage]:
    assert table.rows is not None
    begin, nbytes = table.rows.offset, table.rows.nbytes
    digests = table.entries[:, 0, 0]
    for number in numbers:
        offset = begin + number * nbytes
        if digest_of(data[offset : offset + nbytes]) != int(digests[number]):
            yield Damage(name, offset, table.key(number), "a row is damaged")


def _between(data: memoryview, name: str, table: Table) -> Iterator[Damage]:
    """Headers and padding, which are what we would write again."""
    if table.rows is not None:
        front = front_of(table.fields, table.samples, table.origin.position)
        end = table.rows.offset + table.samples * table.rows.nbytes
        for begin, expected in ((0, front), (end, tar.PADDING[table.payload_nbytes - end])):
            if data[begin : begin + len(expected)] != expected:
                place = begin + _first_difference(data[begin : begin + len(expected)], expected)
                yield Damage(name, place, None, "what lies before or behind the rows is damaged")
        return
    for number, field, offset, nbytes in _present(table):
        key = table.key(number)
        head = tar.header(f"{key}.{field}".encode(), nbytes)
        for begin, expected in ((offset - len(head), head), (offset + nbytes, tar.PADDING[-nbytes % tar.BLOCK])):
            if data[begin : begin + len(expected)] != expected:
                place = begin + _first_difference(data[begin : begin + len(expected)], expected)
                yield Damage(name, place, key, f"the tar header or the padding of {field!r} is damaged")


def _present(table: Table) -> Iterator[tuple[int, str, int, int]]:
    for number, entries in enumerate(table.entries.tolist()):
        for field, (offset, nbytes, _) in zip(table.fields, entries, strict=True):
            if nbytes != ABSENT:
                yield number, field.name, offset, nbytes


def _behind(data: memoryview, shard: Shard) -> list[Damage]:
    """The table's own header, and the end."""
    head = tar.header(MEMBER, shard.table_nbytes + FOOTER_NBYTES)
    places = ((shard.table_offset - tar.BLOCK, head), (shard.object_nbytes - len(tar.END), tar.END))
    return [
        Damage(shard.name, begin + _first_difference(data[begin : begin + len(expected)], expected), None, what)
        for (begin, expected), what in zip(places, repeat("the tar file's own blocks are damaged"), strict=False)
        if data[begin : begin + len(expected)] != expected
    ]


def _first_difference(found: memoryview, expected: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(found))
