"""Makes a set of any dataset: reads its samples in order, encodes them, writes shards, and names them in a catalog.

It has no state of its own. Called again after it was killed, it looks at the shards that are there, and goes on behind
them: their tables say of which making they are, and where in the order they stand. The catalog, with the number of its
generation in its name, is the last thing that is written, and what makes the set be there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.catalog import Catalog, Shard
from swift_loader.shards.fields import Field
from swift_loader.shards.making import Indices, Making, Options
from swift_loader.shards.opening import describe, newest_generation, read_catalog
from swift_loader.shards.prepared import Preparing, Ready
from swift_loader.shards.publishing import publish
from swift_loader.shards.store import Store, store_at
from swift_loader.shards.table import Origin
from swift_loader.shards.writer import ShardWriter

if TYPE_CHECKING:
    from swift_loader.stores.client import Client

_OURS = re.compile(r"shard-(?:\d{3}-)?\d{6,}\.tar")
_PLAIN = re.compile(r"shard-(\d{6,})\.tar")
_TOLD_EVERY_S = 0.1
_MOST_NOTES_NBYTES = 1 << 19


@dataclass(slots=True)
class Progress:
    """How far it is."""

    samples: int = 0
    total: int = 0
    """Of this part; 0 where it is not known."""
    shards: int = 0
    nbytes: int = 0
    """What all shards take that are there."""
    shards_found: int = 0
    """Those that were there before."""
    nbytes_begun: int = 0
    """What stands in the shard that is being written."""


@dataclass(frozen=True, slots=True)
class Created:
    """What was made."""

    where: str
    samples: int
    shards: int
    nbytes: int
    shards_found: int
    """Of the shards, those that were there before: an earlier call was ended, or had done it all."""
    seconds: float
    generation: int | None
    """Of the catalog; None where there is none yet, since other parts are still to come."""


def create(
    source: Any,
    where: object,
    *,
    append: bool = False,
    overwrite: bool = False,
    read: Callable[[Indices], Iterable[Any]] | None = None,
    progress: Callable[[Progress], object] | None = None,
    notes: Mapping[str, Any] | None = None,
    client: Client | None = None,
    **making: Unpack[Options],
) -> Created:
    """Writes the samples of ``source`` as a set of shards.

    It may be ended at any moment and called again with the same words: it goes on, and the bytes are the same.

    Args:
        source: A map-style dataset, or (with ``shuffle=False``) any iterable, of dicts, tuples, or single values.
        where: A folder, an address such as ``s3://bucket/folder``, or a `Store`.
        append: Adds the samples to the set that is there, as its next generation.
        overwrite: Removes the set that is there.
        read: Gives the samples of ``source`` with these indices, in that order: for who reads it by several processes.
        progress: Called with a `Progress` at first, now and then, and at last.
        notes: For people, as JSON has it, such as the names of classes: they stand in the catalog, as `meta["notes"]`.
        client: Which server an address is of, and who is let in (`make_client`); else the environment says.
        **making: See `Making`.

    Raises:
        ConfigError: if an argument is wrong.
        ShardError: if there is another set, or a sample cannot be written.

    Example:
        >>> import tempfile
        >>> samples = [{"jpg": b"...", "cls": number % 10} for number in range(1000)]
        >>> create(samples, tempfile.mkdtemp(), maxcount=400).shards
        3
    """
    began = time.monotonic()
    made = Making.of({"name": name_of(source), **making})
    if append and (overwrite or made.part is not None):
        raise ConfigError("append adds to what is there, all of it in one part: not with overwrite or part")
    if len(json.dumps(notes)) > _MOST_NOTES_NBYTES:
        raise ConfigError(f"notes take more than the {_MOST_NOTES_NBYTES:,} bytes that a catalog has for them")
    samples = _Source(source, made, read)
    store: Store = where if isinstance(where, Store) else store_at(where, make=True, client=client)
    if overwrite:
        _remove(store)
    writing = _Writing(store, made, samples.total, made.recipe(samples.total, is_added=append))
    if not writing.look_around(append=append):
        writing.write(samples, progress)
    generation = writing.commit(notes)
    return Created(
        store.where, writing.told.samples, writing.told.shards, writing.told.nbytes, writing.told.shards_found,
        time.monotonic() - began, generation,
    )  # fmt: skip


def merge(where: object, *, client: Client | None = None) -> Catalog:
    """Makes the catalog of a set whose parts are all there, if the last of them has not done it.

    Raises:
        ShardError: if they are not, or do not belong together.
    """
    store = store_at(where, client=client)
    missing = _merged(store)
    if missing is not None:
        raise missing.within(set=store.where)
    return read_catalog(store)


def _merged(store: Store, notes: Mapping[str, Any] | None = None) -> ShardError | None:
    """Writes the catalog of parts; or what is missing of them."""
    if newest_generation(store):
        return None
    described = [describe(store, name, size) for name, size in store.listed("shard-") if _OURS.fullmatch(name)]
    if not described:
        return ShardError("there are no shards")
    described.sort(key=lambda one: one.table.origin.position)
    first, position = described[0].table.origin, 0
    for shard, table in described:
        if table.origin.recipe != first.recipe or table.origin.total != first.total:
            raise ShardError("this shard is of another making than the others").within(shard.name, store.where)
        if table.origin.position != position:
            gap = ShardError.at("samples before this shard are missing", None, position, table.origin.position)
            return gap.within(shard.name)
        position += table.samples
    if position != first.total if first.total else not described[-1].table.origin.is_last:
        return ShardError.at("the set is not complete", None, f"{first.total} samples", position)
    fields = {f.name: f for _, table in described for f in table.fields}
    _commit(store, [shard for shard, _ in described], first.recipe, _meta(fields, notes), None)
    return None


class _Writing:
    """One call's work on a set."""

    def __init__(self, store: Store, making: Making, total: int, recipe: bytes) -> None:
        self.told = Progress()
        self._store, self._making, self._total, self._recipe = store, making, total, recipe
        self._base: Catalog | None = None
        self._first_number = self._number = 0
        self._shards: list[Shard] = []
        self._fields: dict[str, Field] = {}
        self._position = 0
        self._is_done = False

    def look_around(self, *, append: bool) -> bool:
        """Finds what earlier calls have made; whether that is all of it."""
        if newest := newest_generation(self._store):
            there = read_catalog(self._store, newest)
            if there.recipe == self._recipe:
                return self._have_all(there)
            if not append:
                raise ShardError(
                    "there is another set: name another folder, or append=True, or overwrite=True, which removes it"
                ).within(set=self._store.where)
            self._base = there
            self._position = there.samples
            numbers = [_PLAIN.fullmatch(there.name(shard)) for shard in range(len(there.rows))]
            self._first_number = 1 + max((int(found[1]) for found in numbers if found), default=-1)
        elif append:
            raise ShardError("there is no set to append to").within(set=self._store.where)
        part = self._making.part
        self._position += 0 if part is None else part[0] * self._total // part[1]
        self._number = self._first_number
        self._find_shards()
        return self._is_done

    def write(self, samples: _Source, progress: Callable[[Progress], object] | None) -> None:
        """Writes what is not there yet."""
        origin = Origin(self._position, self._total and self._total + self._base_samples, self._recipe)
        first = self._number
        told = self.told
        told.total = samples.count
        writer = ShardWriter(
            self._store, lambda k: self._name(first + k), self._making.limits, origin, self._note
        )  # fmt: skip
        done, now = told.samples, time.monotonic
        tell = progress or (lambda _: None)
        tell(told)
        due = now() + _TOLD_EVERY_S
        try:
            for number, (key, fields) in enumerate(samples.ready(done), done + 1):
                writer.add(key, fields)
                told.samples = number
                if now() >= due:
                    told.nbytes_begun = writer.nbytes_begun
                    tell(told)
                    due = now() + _TOLD_EVERY_S
            writer.finish()
        finally:
            writer.abandon()
        if samples.total and told.samples != samples.count:
            raise ShardError.at("the source ended too early", None, samples.count, told.samples)
        told.nbytes_begun = 0
        tell(told)

    def commit(self, notes: Mapping[str, Any] | None) -> int | None:
        """Names all shards in a catalog; its generation."""
        if self._making.part is not None:
            is_whole = _merged(self._store, notes) is None  # or others are still at it
            return newest_generation(self._store) if is_whole else None
        if not self._shards:
            raise ShardError("there are no samples, so there is nothing to write").within(set=self._store.where)
        return _commit(self._store, self._shards, self._recipe, _meta(self._fields, notes), self._base)

    @property
    def _base_samples(self) -> int:
        return 0 if self._base is None else self._base.samples

    def _name(self, number: int) -> str:
        part = "" if self._making.part is None else f"{self._making.part[0]:03d}-"
        return f"shard-{part}{number:06d}.tar"

    def _note(self, shard: Shard, fields: Sequence[Field]) -> None:
        self._shards.append(shard)
        self._fields.update({one.name: one for one in fields})
        self.told.shards += 1
        self.told.nbytes += shard.object_nbytes

    def _find_shards(self) -> None:
        """The longest run of shards from the first on, none of which is missing."""
        sizes = dict(self._store.listed("shard-"))
        while (name := self._name(self._number)) in sizes:
            shard, table = describe(self._store, name, sizes[name])
            if table.origin.recipe != self._recipe or table.origin.position != self._position:
                raise ShardError(
                    "this shard is of another making: name another folder, or overwrite=True, which removes it"
                ).within(name, self._store.where)
            self._note(shard, table.fields)
            self._number += 1
            self._position += shard.samples
            self.told.samples += shard.samples
            self.told.shards_found += 1
            self._is_done = table.origin.is_last

    def _have_all(self, there: Catalog) -> bool:
        """The catalog is of this very making: what may be missing is its copy under the name without a number."""
        self._shards = [there.shard(number) for number in range(len(there.rows))]
        self.told = Progress(there.samples, there.samples, len(self._shards), there.nbytes, len(self._shards))
        self._is_done, self._base = True, there
        return True


class _Source:
    """Samples, whatever they come from."""

    def __init__(self, source: Any, making: Making, read: Callable[[Indices], Iterable[Any]] | None) -> None:
        self._source, self._making = source, making
        self._read = read or (lambda indices: map(source.__getitem__, indices))
        self._is_indexed = read is not None or (hasattr(source, "__getitem__") and hasattr(source, "__len__"))
        if not self._is_indexed and (making.shuffle or making.part is not None):
            raise ConfigError(
                f"a {type(source).__name__} has no length and no indices, so shuffle=False is needed, and no part"
            )
        self.total = len(source) if self._is_indexed else 0
        self.count = len(making.indices(self.total))

    def ready(self, done: int) -> Iterable[Ready]:
        """All samples but the first ``done``."""
        preparing = Preparing(self._making)
        if self._is_indexed:
            indices: Iterable[int] = self._making.indices(self.total, done)
            samples = iter(self._read(indices))  # type: ignore[arg-type] # they are such
        else:
            indices, samples = _counted_from(done), islice(iter(self._source), done, None)
        for index, sample in zip(indices, samples, strict=False):
            try:
                yield preparing(sample, index)
            except ShardError as error:
                error.index = index
                raise error.within(key=f"index {index}") from error.__cause__


def _counted_from(begin: int) -> Iterable[int]:
    while True:
        yield begin
        begin += 1


def name_of(source: Any) -> str:
    """What a set is called whose samples come from this one."""
    return f"{type(source).__module__}.{type(source).__qualname__}"


def _remove(store: Store) -> None:
    """The catalog first: what is left of a set, if this is ended, is none."""
    for name in [catalogs.NAME, *(found.name for found in store.listed("index-")), *(
        found.name for found in store.listed("shard-") if _OURS.fullmatch(found.name)
    )]:  # fmt: skip
        store.delete(name)


def _commit(store: Store, shards: Sequence[Shard], recipe: bytes, meta: dict[str, Any], base: Catalog | None) -> int:
    generation, uuid, before = 1, None, []
    if base is not None and base.recipe == recipe:
        data, generation = bytes(store.whole(catalogs.generation_name(base.generation))), base.generation
    else:
        if base is not None:
            generation, uuid = base.generation + 1, base.uuid
            before = [base.shard(number) for number in range(len(base.rows))]
            meta = {**base.meta, **meta, "fields": {**base.meta.get("fields", {}), **meta["fields"]}}
        data = catalogs.write([*before, *shards], generation=generation, recipe=recipe, uuid=uuid, meta=meta)
    publish(store, generation, data)
    return generation


def _meta(fields: Mapping[str, Field], notes: Mapping[str, Any] | None) -> dict[str, Any]:
    told = {
        name: {"dtype": one.dtype, "shape": list(one.shape), "column": one.has_column}
        for name, one in sorted(fields.items())
    }
    return {"fields": told} | ({"notes": dict(notes)} if notes else {})
