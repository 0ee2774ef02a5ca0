"""Makes sets of shards that are there already: a table beside each that has none, and a catalog of all of them.

Nothing of the shards is written anew. It may be ended at any moment and called again: tables that are there are taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from swift_loader.errors import ConfigError
from swift_loader.settings.checks import whole
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.beside import Asked, Beside, refuse_packed
from swift_loader.shards.catalog import COMPLETE, FOREIGN, SIDECARS, Catalog, Kind, Shard
from swift_loader.shards.folder import Folder
from swift_loader.shards.layouts import Layout
from swift_loader.shards.lookers import Lookers
from swift_loader.shards.opening import newest_generation, read_catalog
from swift_loader.shards.publishing import publish
from swift_loader.shards.recognised import INDEX, notes, recognised
from swift_loader.shards.rows import RawRows
from swift_loader.shards.sets import is_pattern, matched
from swift_loader.shards.store import store_at
from swift_loader.shards.url import place_of

if TYPE_CHECKING:
    from swift_loader.stores.client import Client


@dataclass(frozen=True, slots=True)
class Looked:
    """How far it is."""

    shards: int
    total: int
    samples: int
    nbytes: int
    """What the shards take that were looked at."""


def index(
    url: str | os.PathLike[str] | RawRows,
    *,
    index_to: str | os.PathLike[str] | None = None,
    workers: int = 1,
    checksums: bool = False,
    progress: Callable[[Looked], object] | None = None,
    client: Client | None = None,
) -> Catalog:
    """Makes the catalog of shards that are there, and tables beside those that have none.

    Args:
        url: A folder, all of whose tar files are meant, or a pattern: ``"laion/{00000..01023}.tar"``, ``"x-*.npy"``.
            Files of rows that do not tell what they are: `RawRows`.
        index_to: A folder for the catalog and the tables, where nothing can be written beside the shards; the set is
            then opened with ``ShardDataset(url, index=...)``.
        workers: So many processes look at shards at once.
        checksums: Of a set that MosaicML's streaming or LitData wrote: makes tables with checksums, for which all of it
            is read. Without them such a set needs no catalog.
        progress: Called with a `Looked` after each shard.
        client: Which server an address (``s3://bucket/folder``) is of, and who is let in; else the environment says.
            Tar files in a bucket are looked at by this process alone.

    Returns:
        The catalog. Where nothing has changed it is the one that was there.

    Raises:
        ConfigError: if there are no such shards, or such that samples cannot be picked out of.
        ShardError: if one is damaged, or has two files of one name in a sample.

    Example:
        >>> index("laion/{00000..01023}.tar", workers=8).samples  # doctest: +SKIP
        10240000
    """
    whole("workers", workers, least=1)
    place, asked = _shards_of(url, index_to, client, checksums=checksums)
    lines: list[Shard] = []
    samples = nbytes = 0
    at_once = workers if place_of(place.shards.where).scheme == "file" else 1
    for line in _lines(place, asked, at_once):
        lines.append(line)
        samples, nbytes = samples + line.samples, nbytes + line.object_nbytes
        if progress is not None:
            progress(Looked(len(lines), len(asked), samples, nbytes))
    return _named(place, lines)


def _shards_of(
    asked: str | os.PathLike[str] | RawRows,
    index_to: str | os.PathLike[str] | None,
    client: Client | None,
    *,
    checksums: bool,
) -> tuple[Beside, list[Asked]]:
    """Where the shards and their tables are, and which shards."""
    given = asked if isinstance(asked, RawRows) else None
    url = os.fspath(asked.files if isinstance(asked, RawRows) else asked)
    if place_of(url).scheme != "file":
        return _in_a_bucket(url, index_to, client, checksums=checksums)
    folder, names = matched(url) if given is not None or is_pattern(url) else (url, None)
    shards = Folder(place_of(folder).path)
    tables = shards if index_to is None else store_at(index_to, make=True, client=client)
    if names is not None:
        return Beside(shards, tables, given), list(map(Asked, names))
    listed = [found.name for found in shards.listed()]
    if tars := [name for name in listed if name.endswith(".tar")]:
        return Beside(shards, tables), list(map(Asked, tars))
    if (found := _of_others(url, shards, tables, checksums=checksums)) is not None:
        return found
    for name in listed:
        refuse_packed(name)
    raise ConfigError(f"{url} has no tar files in it, nor an {INDEX} of MosaicML's or LitData's")


def _of_others(url: str, shards: Any, tables: Any, *, checksums: bool) -> tuple[Beside, list[Asked]] | None:
    """A set that MosaicML's streaming or LitData wrote, if it is one."""
    found = recognised(shards)
    if found is None:
        return None
    if not checksums:
        raise ConfigError(f"ShardDataset({url!r}) reads this as it is; checksums=True makes checksums for it")
    layout, there = found
    rows = zip(there.rows["count"].tolist(), there.bounds.tolist(), strict=False)
    return Beside(shards, tables, layout), [Asked(there.name(at), *row) for at, row in enumerate(rows)]


def _in_a_bucket(
    url: str, index_to: str | os.PathLike[str] | None, client: Client | None, *, checksums: bool
) -> tuple[Beside, list[Asked]]:
    if is_pattern(url):
        raise ConfigError(f"{url}: of a bucket, all tar files of a folder become a set: name the folder")
    shards: Any = store_at(url, client=client)
    tables = shards if index_to is None else store_at(index_to, make=True, client=client)
    tars = [found.name for found in shards.listed() if found.name.endswith(".tar")]
    if tars:
        return Beside(shards, tables), list(map(Asked, tars))
    if (found := _of_others(url, shards, tables, checksums=checksums)) is not None:
        return found
    raise ConfigError(f"{url} has no tar files in it, nor an {INDEX} of MosaicML's or LitData's")


def _lines(place: Beside, asked: Sequence[Asked], workers: int) -> Iterator[Shard]:
    if workers == 1 or len(asked) == 1:
        yield from map(place.found_or_made, asked)
    else:
        with Lookers(place, min(workers, len(asked))) as lookers:
            yield from lookers.lines(asked)


def _named(place: Beside, lines: list[Shard]) -> Catalog:
    """Writes the catalog as the next generation, unless the newest has these very shards."""
    store, meta = place.tables, notes(place.layout) if isinstance(place.layout, Layout) else None
    generation, uuid = newest_generation(store), None
    if generation:
        there = read_catalog(store, generation)
        if [there.shard(number) for number in range(len(there.rows))] == lines:
            publish(store, generation, bytes(store.whole(catalogs.generation_name(generation))))
            return there
        uuid = there.uuid
    generation += 1
    beside = any(line.kind != Kind.TAR for line in lines)
    flags = COMPLETE | (FOREIGN | SIDECARS if beside else 0)
    data = catalogs.write(lines, generation=generation, flags=flags, uuid=uuid, meta=meta)
    publish(store, generation, data)
    return Catalog.read(data)
