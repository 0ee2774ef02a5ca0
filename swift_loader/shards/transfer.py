"""A set goes from one store to another, shard by shard, each checked on its way; the catalog is written last.

It may be ended at any moment and called again: shards that are there, and are the ones of the catalog, stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.xxhash import WideDigest
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.catalog import Catalog, Kind, Shard
from swift_loader.shards.opening import describe, newest_generation, read_catalog, read_table
from swift_loader.shards.publishing import publish
from swift_loader.shards.store import Store
from swift_loader.shards.tar import BLOCK

_AT_ONCE = 4
_PART_NBYTES = 16 << 20


@dataclass(slots=True)
class Transferred:
    """How far it is; and what was done."""

    shards: int
    total: int
    samples: int
    nbytes: int
    """What the shards take that are there now."""
    shards_found: int
    """Those that were there before."""
    generation: int


def transfer(
    source: Store,
    target: Store,
    *,
    generation: int | None = None,
    shards: Sequence[int] | None = None,
    progress: Callable[[Transferred], object] | None = None,
) -> Transferred:
    """Copies a set.

    Args:
        source: Where it is.
        target: Where it is to be. Another set must not be there.
        generation: Which generation; the newest if not given.
        shards: These alone, by their numbers: a set of its own, with the samples that they have.
        progress: Called with a `Transferred` after each shard.

    Raises:
        ConfigError: if there are no such shards.
        FileNotFoundError: if there is no set, or a shard of it is missing.
        ShardError: if a shard is damaged, or another set is there.
    """
    catalog = read_catalog(source, generation)
    lines = [catalog.shard(number) for number in range(len(catalog.rows))]
    if shards is not None:
        lines = [lines[number] for number in _checked(shards, len(lines))]
    _refuse_another(target, catalog, lines if shards is not None else None)
    told = Transferred(0, len(lines), 0, 0, 0, catalog.generation if shards is None else 1)
    there = dict(target.listed())
    if progress is not None:
        progress(told)
    for line, was_there in _each(lines, lambda line: _moved(source, target, line, there)):
        told.shards += 1
        told.samples += line.samples
        told.nbytes += line.object_nbytes
        told.shards_found += was_there
        if progress is not None:
            progress(told)
    publish(target, told.generation, _catalog_of(source, catalog, lines, is_whole=shards is None))
    return told


def _checked(numbers: Sequence[int], count: int) -> Sequence[int]:
    for number in numbers:
        if not 0 <= number < count:
            raise ConfigError(f"there are {count:,} shards, and no shard {number}")
    return numbers


def _refuse_another(target: Store, catalog: Catalog, some: list[Shard] | None) -> None:
    newest = newest_generation(target)
    if not newest:
        return
    there = read_catalog(target, newest)
    if some is not None:
        is_same = [there.shard(number) for number in range(len(there.rows))] == some
    else:
        is_same = there.uuid == catalog.uuid and there.generation <= catalog.generation
    if not is_same:
        raise ShardError("another set is there, or a later generation of it: name another folder").within(
            set=target.where
        )


def bytes_of(store: Store, catalog: Catalog) -> bytes:
    """A catalog of a store, as it is written there."""
    try:
        return bytes(store.whole(catalogs.generation_name(catalog.generation)))
    except FileNotFoundError:  # a copy by other means has one name alone
        return bytes(store.whole(catalogs.NAME))


def _catalog_of(source: Store, catalog: Catalog, lines: list[Shard], *, is_whole: bool) -> bytes:
    if is_whole:
        return bytes_of(source, catalog)
    return catalogs.write(
        lines, generation=1, flags=catalog.flags & ~catalogs.COMPLETE, recipe=catalog.recipe, meta=catalog.meta
    )


def _each(lines: Sequence[Shard], move: Callable[[Shard], bool]) -> Iterator[tuple[Shard, bool]]:
    """Some at a time, in their order; at the first error nothing more is begun."""
    left = iter(lines)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="swift-transfer") as threads:
        underway = deque((line, threads.submit(move, line)) for line in islice(left, _AT_ONCE))
        try:
            while underway:
                line, moved = underway.popleft()
                yield line, moved.result()
                underway.extend((line, threads.submit(move, line)) for line in islice(left, 1))
        finally:
            for _, moved in underway:
                moved.cancel()


def _moved(source: Store, target: Store, line: Shard, there: dict[str, int]) -> bool:
    """Whether the shard was there."""
    if line.kind not in (Kind.TAR, Kind.SIDECAR):
        raise ConfigError(f"{line.name} is no tar file: `shard convert` writes such a set anew, as tar files")
    was_there = line.name in there and _is(target, line, there[line.name])
    if not was_there:
        copy(source, target, line)
    if line.kind == Kind.SIDECAR:
        _put(target, f"{line.name}.swift", bytes(source.whole(f"{line.name}.swift")))
    return was_there


def _is(target: Store, line: Shard, nbytes: int) -> bool:
    """Whether what is there under that name is this shard: raises `ShardError` if it is another."""
    if nbytes == line.object_nbytes and (line.kind != Kind.TAR or describe(target, line.name, nbytes).shard == line):
        return True
    raise ShardError("another shard of this name is there: name another folder, or remove it").within(
        line.name, target.where
    )


def copy(source: Store, target: Store, line: Shard) -> None:
    """Writes one shard, which must be as its catalog and its table say.

    Raises:
        ShardError: if it is damaged, or another writer has just put one there.
    """
    draft = target.draft(line.name)
    digest, payload_nbytes = WideDigest(), line.object_nbytes
    if line.kind == Kind.TAR:
        payload_nbytes = line.table_offset - BLOCK
        read_table(source, line)
    try:
        for begin in range(0, line.object_nbytes, _PART_NBYTES):
            part = source.read(line.name, begin, min(_PART_NBYTES, line.object_nbytes - begin))
            digest.update(memoryview(part)[: max(0, payload_nbytes - begin)])
            draft.write([part])
        if line.kind == Kind.TAR and digest.digest() != line.payload_digest:
            raise ShardError("the shard is damaged: `shard verify` says where").within(line.name, source.where)
        draft.publish()
    except FileExistsError:
        raise ShardError("another writer has just put a shard there").within(line.name, target.where) from None
    finally:
        draft.discard()


def _put(target: Store, name: str, data: bytes) -> None:
    draft = target.draft(name)
    try:
        draft.write([data])
        draft.publish()
    except FileExistsError:
        if bytes(target.whole(name)) != data:
            raise ShardError("another table of this name is there").within(name, target.where) from None
    finally:
        draft.discard()
