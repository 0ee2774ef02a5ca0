"""What is damaged in a set is mended from another copy: only the damaged ranges are read there, if that is enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import wide_digest_of
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.catalog import Catalog, Kind, Shard
from swift_loader.shards.opening import newest_generation, read_catalog, read_table
from swift_loader.shards.store import Store
from swift_loader.shards.table import ABSENT, Table
from swift_loader.shards.tar import BLOCK
from swift_loader.shards.transfer import bytes_of
from swift_loader.shards.verifying import Damage, verify

#: Around a place of which nobody knows how far the damage goes.
_AROUND = 64 << 10


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was mended."""

    shards: int
    catalogs: int
    nbytes: int
    """What was read of the other copy."""


def repair(store: Store, other: Store, damages: Sequence[Damage], generation: int | None = None) -> Repaired:
    """Mends a set whose ``damages`` `verify` has named.

    Raises:
        ShardError: if the other copy is of another set, or damaged there too.
    """
    catalog = read_catalog(other, generation)
    newest = newest_generation(store)
    here = _own_catalog(store, newest) if newest else None
    if here is not None and (here.digest, here.uuid) != (catalog.digest, catalog.uuid):
        raise ShardError("this is no copy of the set that is to be repaired").within(set=other.where)
    mended = 0
    for name in (catalogs.generation_name(catalog.generation), catalogs.NAME):
        if here is None or any(damage.shard == name for damage in damages):
            store.replace(name, bytes_of(other, catalog))
            mended += 1
    if here is None:  # without a catalog nobody has looked at the shards
        damages = verify(store, generation)
    shards = nbytes = 0
    for line in (catalog.shard(number) for number in range(len(catalog.rows))):
        own = [damage for damage in damages if damage.shard == line.name]
        if own:
            nbytes += _mended(store, other, line, own)
            shards += 1
    return Repaired(shards, mended, nbytes)


def _own_catalog(store: Store, newest: int) -> Catalog | None:
    for number in (newest, None):
        try:
            return read_catalog(store, number)
        except (ShardError, FileNotFoundError):
            continue
    return None


def _mended(store: Store, other: Store, line: Shard, damages: Iterable[Damage]) -> int:
    """Mends one shard; how much of the other one was read."""
    if line.kind != Kind.TAR:
        raise ShardError("only tar files with tables are mended from another copy").within(line.name, store.where)
    table = read_table(other, line)
    try:
        data = bytearray(store.whole(line.name))
    except FileNotFoundError:
        data = bytearray()
    nbytes = 0
    if len(data) == line.object_nbytes:
        for begin, end in _ranges(line, table, damages):
            data[begin:end] = bytes(other.read(line.name, begin, end - begin))
            nbytes += end - begin
    if not _is_whole(data, line):
        data = bytearray(other.whole(line.name))
        nbytes += len(data)
    if not _is_whole(data, line):
        raise ShardError("the shard is damaged in both copies").within(line.name, other.where)
    store.replace(line.name, bytes(data))
    return nbytes


def _ranges(line: Shard, table: Table, damages: Iterable[Damage]) -> list[tuple[int, int]]:
    """What is read anew: the samples that are damaged, what lies around other places, and the table with its end."""
    extents = [] if table.rows is not None else table.entries[:, :, :2].reshape(-1, 2).tolist()
    sizes: dict[int, int] = {offset: nbytes for offset, nbytes in extents if nbytes != ABSENT}
    ranges = [(line.table_offset - BLOCK, line.object_nbytes)]
    for damage in damages:
        if damage.offset is None:
            continue
        size = sizes.get(damage.offset)
        begin = damage.offset if size is not None else max(0, damage.offset - _AROUND)
        ranges.append((begin, min(line.object_nbytes, damage.offset + (size or _AROUND))))
    return ranges


def _is_whole(data: bytearray, line: Shard) -> bool:
    if len(data) != line.object_nbytes:
        return False
    return wide_digest_of(memoryview(data)[: line.table_offset - BLOCK]) == line.payload_digest
