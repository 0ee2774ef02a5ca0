"""Which shards a user means: those of a folder's catalog, or those that a pattern names."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.errors import ConfigError
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.beside import Beside, refuse_packed
from swift_loader.shards.catalog import Catalog, Shard
from swift_loader.shards.folder import Folder
from swift_loader.shards.layouts import Layout
from swift_loader.shards.opening import newest_generation, read_catalog
from swift_loader.shards.recognised import layout_of, recognised
from swift_loader.shards.remote import RemoteSet
from swift_loader.shards.store import Store
from swift_loader.shards.url import place_of
from swift_loader.stores.client import Client
from swift_loader.stores.fetched import Fetched
from swift_loader.stores.obstore import SCHEMES

if TYPE_CHECKING:
    from swift_loader.shards.url import Place

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_ADVICE = (
    "`swift-loader shard index` (or swift_loader.shards.index) makes tables and a catalog for shards that are there"
)


class OpenedSet(NamedTuple):
    """A set, and where its parts are."""

    shards: Folder | Fetched
    tables: Store
    """Has those tables that shards do not have themselves."""
    catalog: Catalog
    layout: Layout | None = None
    """How samples lie in files of other libraries."""
    remote: RemoteSet | None = None
    """Where they are elsewhere: what has them fetched."""


class Elsewhere(NamedTuple):
    """Who is let into the store that a set is in, and what its fetcher is to do."""

    client: Client | None = None
    options: dict[str, Any] | None = None

    @property
    def is_metered(self) -> bool:
        """Whether each byte is paid for."""
        return "egress_usd_per_gb" in (self.options or {})

    def at(self, place: Place) -> Fetched:
        """The store that is there, as the fetcher reads it."""
        if place.scheme not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise ConfigError(f"{place.scheme}:// is no store of shards: name a folder of this machine, or {known}")
        return Fetched(place, self.client or Client(), self.options)


_NOTHING_SAID = Elsewhere()


def open_set(
    url: str, generation: int | None = None, index: str | None = None, elsewhere: Elsewhere = _NOTHING_SAID
) -> OpenedSet:
    """The set that a folder or a pattern of shards names; ``index``: the folder of its catalog and its tables.

    Args:
        url: The folder, the bucket's folder, or the pattern.
        generation: Of the set; the newest if not given.
        index: Where the catalog is, if it is not there.
        elsewhere: How a store that is no folder is read.

    Raises:
        ConfigError: if there is no such set.
        ShardError: if it is damaged.
    """
    if is_pattern(url):
        if generation is not None:
            raise ConfigError(f"generation={generation} is for sets with a catalog; {url!r} names shards")
        return _with_remote(_set_of(url, index, elsewhere))
    shards = _store(url, elsewhere)
    tables = shards if index is None else _store(index, elsewhere)
    return _with_remote(_opened(url, shards, tables, generation))


def _opened(url: str, shards: Folder | Fetched, tables: Folder | Fetched, generation: int | None) -> OpenedSet:
    try:
        catalog = read_catalog(tables, generation)
        return OpenedSet(shards, tables, catalog, layout_of(catalog))
    except FileNotFoundError:
        found = recognised(shards) if generation is None else None
        if found is not None:
            return OpenedSet(shards, tables, found[1], found[0])
        newest = newest_generation(tables)
        if generation is not None and newest:
            raise ConfigError(f"{url} has no generation {generation}: the newest is {newest}") from None
        raise ConfigError(f"{tables.where} has no {catalogs.NAME}: {_ADVICE}") from None


def is_pattern(url: str) -> bool:
    """Whether it names shards, and not a folder of them."""
    return any(sign in url for sign in "{*?[") or url.endswith((".tar", ".npy"))


def matched(pattern: str) -> tuple[str, list[str]]:
    """The folder that all shards of a pattern are in, and their names from there on."""
    paths = [path for each in expanded(pattern) for path in _matching(each)]
    for path in paths:
        refuse_packed(path)
    absolute = [Path(path).absolute() for path in paths]
    folder = os.path.commonpath([path.parent for path in absolute])
    return folder, [str(path.relative_to(folder)) for path in absolute]


def _with_remote(opened: OpenedSet) -> OpenedSet:
    if not isinstance(opened.shards, Fetched):
        return opened
    tables = opened.tables if opened.tables is not opened.shards else None
    assert isinstance(tables, Fetched | Folder | None)
    return opened._replace(remote=RemoteSet(opened.shards, opened.catalog, tables))


def _store(url: str, elsewhere: Elsewhere) -> Folder | Fetched:
    place = place_of(url)
    return Folder(place.path) if place.scheme == "file" else elsewhere.at(place)


def _set_of(pattern: str, index: str | None, elsewhere: Elsewhere) -> OpenedSet:
    """Shards by their names, with a catalog of their own tables: it is nowhere but here, and of no generation."""
    shards: Folder | Fetched
    if "://" in pattern and not pattern.startswith("file:"):
        shards, names = _matched_elsewhere(pattern, elsewhere)
    else:
        folder, names = matched(place_of(pattern).path)
        shards = Folder(folder)
    tables = shards if index is None else _store(index, elsewhere)
    place = Beside(shards, tables)
    lines = [_line(place, name) for name in names]
    return OpenedSet(shards, tables, Catalog.read(catalogs.write(lines, generation=0)))


def _matched_elsewhere(pattern: str, elsewhere: Elsewhere) -> tuple[Fetched, list[str]]:
    """The folder of a bucket, and the names in it that a pattern means."""
    first = min(pattern.find(sign) for sign in "{*?[" if sign in pattern) if is_wild(pattern) else len(pattern)
    folder, _, _ = pattern[:first].rpartition("/")
    store = elsewhere.at(place_of(folder))
    names: list[str] = []
    for each in expanded(pattern[len(folder) + 1 :]):
        refuse_packed(each)
        if "/" in each and any(sign in each for sign in "*?["):
            raise ConfigError(f"{pattern!r}: only the last part of a bucket's address can be a pattern of names")
        found = [one.name for one in store.listed() if fnmatchcase(one.name, each)] if _has_jokers(each) else [each]
        if not found:
            raise ConfigError(f"there is no object {each!r} in {store.where}")
        names += found
    return store, names


def _has_jokers(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def is_wild(pattern: str) -> bool:
    """Whether it names several."""
    return "{" in pattern or _has_jokers(pattern)


def _line(place: Beside, name: str) -> Shard:
    line = place.found(name)
    if line is None:
        raise ConfigError(f"{place.shards.where}/{name} has no table of ours: if this is a tar file, {_ADVICE}")
    return line


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
