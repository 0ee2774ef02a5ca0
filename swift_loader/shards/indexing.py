"""Makes sets of shards that are there already: a table beside each that has none, and a catalog of all of them.

Nothing of the shards is written anew. It may be ended at any moment and called again: tables that are there are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError
from swift_loader.settings.checks import whole
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.beside import Beside, refuse_packed
from swift_loader.shards.catalog import COMPLETE, FOREIGN, SIDECARS, Catalog, Kind, Shard
from swift_loader.shards.lookers import Lookers
from swift_loader.shards.opening import newest_generation, read_catalog
from swift_loader.shards.publishing import publish
from swift_loader.shards.sets import is_pattern, matched
from swift_loader.shards.store import store_at

if TYPE_CHECKING:
    from swift_loader.shards.store import Store


@dataclass(frozen=True, slots=True)
class Looked:
    """How far it is."""

    shards: int
    total: int
    samples: int
    nbytes: int
    """What the shards take that were looked at."""


def index(
    url: str,
    *,
    index_to: str | None = None,
    workers: int = 1,
    progress: Callable[[Looked], object] | None = None,
) -> Catalog:
    """Makes the catalog of shards that are there, and tables beside those that have none.

    Args:
        url: A folder, all of whose tar files are meant, or a pattern: ``"laion/{00000..01023}.tar"``.
        index_to: A folder for the catalog and the tables, where nothing can be written beside the shards; the set is
            then opened with ``ShardDataset(url, index=...)``.
        workers: So many processes look at shards at once.
        progress: Called with a `Looked` after each shard.

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
    folder, names = _shards_of(str(url))
    shards = store_at(folder)
    place = Beside(shards, shards if index_to is None else store_at(index_to, make=True))
    lines: list[Shard] = []
    samples = nbytes = 0
    for line in _lines(place, names, workers):
        lines.append(line)
        samples, nbytes = samples + line.samples, nbytes + line.object_nbytes
        if progress is not None:
            progress(Looked(len(lines), len(names), samples, nbytes))
    return _named(place.tables, lines)


def _shards_of(url: str) -> tuple[str, list[str]]:
    """The folder of the shards, and their names."""
    if is_pattern(url):
        return matched(url)
    listed = [found.name for found in store_at(url).listed()]
    names = [name for name in listed if name.endswith(".tar")]
    if not names:
        for name in listed:
            refuse_packed(name)
        raise ConfigError(f"{url} has no tar files in it")
    return url, names


def _lines(place: Beside, names: Sequence[str], workers: int) -> Iterator[Shard]:
    if workers == 1 or len(names) == 1:
        yield from map(place.found_or_made, names)
    else:
        with Lookers(place, min(workers, len(names))) as lookers:
            yield from lookers.lines(names)


def _named(store: Store, lines: list[Shard]) -> Catalog:
    """Writes the catalog as the next generation, unless the newest has these very shards."""
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
    data = catalogs.write(lines, generation=generation, flags=flags, uuid=uuid)
    publish(store, generation, data)
    return Catalog.read(data)
