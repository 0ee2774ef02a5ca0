"""Looks at every byte of a set: what is not as it was written is named, with its shard, its place, and its sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import digest_of, wide_digest_of
from swift_loader.shards import catalog as catalogs
from swift_loader.shards import tar
from swift_loader.shards.catalog import Catalog, Kind, Shard
from swift_loader.shards.opening import describe, newest_generation, read_catalog
from swift_loader.shards.store import Store, store_at
from swift_loader.shards.table import ABSENT, FOOTER_NBYTES, MEMBER, Table


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


def verify(
    where: object, generation: int | None = None, progress: Callable[[int, int], object] | None = None
) -> list[Damage]:
    """All damage of a set; nothing where each byte is as it was written.

    Args:
        where: The set's folder.
        generation: Which generation; by default the newest.
        progress: Called after each shard with how many were looked at, and how many there are.

    Raises:
        FileNotFoundError: if there is no set.
    """
    store = store_at(where)
    catalog, found = _catalog(store, generation)
    if catalog is None:
        return found
    count = len(catalog.rows)
    for number in range(count):
        shard = catalog.shard(number)
        try:
            found += _damage_of(store, shard)
        except FileNotFoundError:
            found.append(Damage(shard.name, None, None, "it is missing"))
        if progress is not None:
            progress(number + 1, count)
    return found


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


def _damage_of(store: Store, shard: Shard) -> list[Damage]:
    if shard.kind != Kind.TAR:
        return [Damage(shard.name, None, None, f"shards of kind {shard.kind} are not looked at by this version")]
    nbytes = store.nbytes(shard.name)
    if nbytes != shard.object_nbytes:
        what = f"it has {nbytes} bytes instead of {shard.object_nbytes}"
        return [Damage(shard.name, min(nbytes, shard.object_nbytes), None, what)]
    data = memoryview(store.whole(shard.name))
    try:
        line, table = describe(store, shard.name, nbytes)
    except ShardError as error:
        return [Damage(shard.name, shard.table_offset, None, str(error)), *_payload_alone(data, shard)]
    found = []
    if line != shard:
        found.append(Damage(shard.name, shard.table_offset, None, "table and catalog do not agree"))
    samples = list(_samples(data, shard.name, table))
    if samples or wide_digest_of(data[: table.payload_nbytes]) != table.payload_digest:
        found += samples + list(_between(data, shard.name, table))
    return found + _behind(data, shard)


def _payload_alone(data: memoryview, shard: Shard) -> list[Damage]:
    """Of a shard whose table is lost: whether its samples are too."""
    if wide_digest_of(data[: shard.table_offset - tar.BLOCK]) == shard.payload_digest:
        return []
    return [Damage(shard.name, 0, None, "the samples' part of it is damaged too")]


def _samples(data: memoryview, name: str, table: Table) -> Iterator[Damage]:
    fields = table.fields
    for number, entries in enumerate(table.entries.tolist()):
        for field, (offset, nbytes, digest) in zip(fields, entries, strict=True):
            if nbytes != ABSENT and digest_of(data[offset : offset + nbytes]) != digest:
                yield Damage(name, offset, table.key(number), f"field {field.name!r} is damaged")


def _between(data: memoryview, name: str, table: Table) -> Iterator[Damage]:
    """Headers and padding, which are what we would write again."""
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
