"""Which shards a user means: those of a folder's catalog, or those that a pattern names."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from swift_loader.errors import ConfigError
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.beside import Beside, refuse_packed
from swift_loader.shards.catalog import Catalog, Shard
from swift_loader.shards.folder import Folder
from swift_loader.shards.layouts import Layout
from swift_loader.shards.opening import newest_generation, read_catalog
from swift_loader.shards.recognised import layout_of, recognised
from swift_loader.shards.store import store_at

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_ADVICE = "swift_loader.shards.index() makes tables and a catalog for shards that are there"


class OpenedSet(NamedTuple):
    """A set, and where its parts are."""

    shards: Folder
    tables: Folder
    """Has those tables that shards do not have themselves."""
    catalog: Catalog
    layout: Layout | None = None
    """How samples lie in files of other libraries."""


def open_set(url: str, generation: int | None = None, index: str | None = None) -> OpenedSet:
    """The set that a folder or a pattern of shards names; ``index``: the folder of its catalog and its tables.

    Raises:
        ConfigError: if there is no such set.
        ShardError: if it is damaged.
    """
    if is_pattern(url):
        if generation is not None:
            raise ConfigError(f"generation={generation} is for sets with a catalog; {url!r} names shards")
        return _set_of(url, index)
    shards = _folder(url)
    tables = shards if index is None else _folder(index)
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


def _folder(url: str) -> Folder:
    store = store_at(url)
    assert isinstance(store, Folder)  # there is no other yet
    return store


def _set_of(pattern: str, index: str | None) -> OpenedSet:
    """Shards by their names, with a catalog of their own tables: it is nowhere but here, and of no generation."""
    folder, names = matched(pattern)
    shards = Folder(folder)
    tables = shards if index is None else _folder(index)
    place = Beside(shards, tables)
    lines = [_line(place, name) for name in names]
    return OpenedSet(shards, tables, Catalog.read(catalogs.write(lines, generation=0)))


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
