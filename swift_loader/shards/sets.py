"""Which shards a user means: those of a folder's catalog, or those that a pattern names."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.xxhash import digest_of
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.catalog import Catalog, Kind, Shard
from swift_loader.shards.folder import Folder
from swift_loader.shards.opening import describe, newest_generation, read_catalog
from swift_loader.shards.store import store_at
from swift_loader.shards.table import Table

if TYPE_CHECKING:
    from swift_loader.shards.store import Store

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_ADVICE = "`swift-loader shard index` makes a catalog of the shards that are there"


def open_set(url: str, generation: int | None = None) -> tuple[Folder, Catalog]:
    """The folder and the catalog of a set.

    Raises:
        ConfigError: if there is no such set.
        ShardError: if it is damaged.
    """
    if any(sign in url for sign in "{*?["):
        if generation is not None:
            raise ConfigError(f"generation={generation} is for sets with a catalog; {url!r} names shards")
        return _set_of(url)
    if url.endswith(".tar"):
        return _set_of(url)
    store = store_at(url)
    assert isinstance(store, Folder)  # there is no other yet
    try:
        return store, read_catalog(store, generation)
    except FileNotFoundError:
        newest = newest_generation(store)
        if generation is not None and newest:
            raise ConfigError(f"{url} has no generation {generation}: the newest is {newest}") from None
        raise ConfigError(f"{url} has no {catalogs.NAME}: {_ADVICE}") from None


def _set_of(pattern: str) -> tuple[Folder, Catalog]:
    """Shards by their names, with a catalog of their own tables: it is nowhere but here, and of no generation."""
    paths = [path for each in expanded(pattern) for path in _matching(each)]
    folder = Path(os.path.commonpath([Path(path).absolute().parent for path in paths]))
    store = Folder(folder)
    shards = [described(store, str(Path(path).absolute().relative_to(folder))) for path in paths]
    return store, Catalog.read(catalogs.write(shards, generation=0))


def expanded(pattern: str) -> Iterator[str]:
    """``a-{00..02}.tar`` as three names, ``{a,b}.tar`` as two: as shells and webdataset have it."""
    parts, at = [], 0
    for found in _RANGE.finditer(pattern):
        first, last, listed = found.groups()
        parts.append([pattern[at : found.start()]])
        at = found.end()
        if listed is not None:
            parts.append(listed.split(","))
        else:
            parts.append([f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)])
    return map("".join, itertools.product(*parts, [pattern[at:]]))


def _matching(path: str) -> list[str]:
    found = sorted(glob.glob(path)) if any(sign in path for sign in "*?[") else [path]  # noqa: PTH207 - absolute ones too
    if not found:
        raise ConfigError(f"there is no file {path!r}")
    return found


def described(store: Store, name: str) -> Shard:
    """What a shard is, as its own table tells, or one beside it."""
    try:
        nbytes = store.nbytes(name)
    except FileNotFoundError:
        raise ConfigError(f"there is no shard {name!r} in {store.where}") from None
    try:
        data = bytes(memoryview(store.whole(f"{name}.swift")))
    except FileNotFoundError:
        return _by_itself(store, name, nbytes)
    table = Table.read(data, nbytes)
    return Shard(
        name, table.samples, nbytes, 0, len(data), digest_of(data), table.payload_digest, Kind.SIDECAR,
    )  # fmt: skip


def _by_itself(store: Store, name: str, nbytes: int) -> Shard:
    try:
        return describe(store, name, nbytes).shard
    except ShardError as error:
        error.add_note(f"If this is a tar file that others wrote: {_ADVICE}, and their tables")
        raise
