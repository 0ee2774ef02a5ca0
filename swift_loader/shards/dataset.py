"""A set of shards as a map-style dataset: any sample by its index, checked where it lands."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import DataError, ShardError
from swift_loader.plan.runs import Runs, extents
from swift_loader.settings.checks import whole
from swift_loader.shards.decode import Decoding
from swift_loader.shards.in_place import wishes_in_place
from swift_loader.shards.numbering import place
from swift_loader.shards.reading import Reading
from swift_loader.shards.selection import Selection
from swift_loader.shards.sets import Elsewhere, open_set
from swift_loader.shards.together import Together
from swift_loader.shards.upcoming import FREE, METERED, PlanOfSome
from swift_loader.shards.wishes import Wishes, decoder_in_tars
from swift_loader.stores.fetched import checked_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.shards.catalog import Catalog
    from swift_loader.shards.opened import OpenShard
    from swift_loader.shards.wishes import Granted
    from swift_loader.stores.client import Client


class ShardDataset:
    """The samples of a set of shards, by index.

    Args:
        url: a folder that has a catalog (`index.swift`), or a pattern of tar files (``"train-{000..127}.tar"``,
            ``"train-*.tar"``) that have tables.
        fields: which fields a sample has, and in which form: ``("jpg;png", "cls")`` gives tuples, ``"txt"`` the field
            alone, None a dict of all there are. Of names with ``;`` between them, the first that a sample has.
            ``"__key__"`` is the sample's key.
        transform: called with each sample.
        decode: what images become: ``"pil"``, ``"rgb8"``, ``"torchrgb"``, ...; None: bytes. Text, numbers, JSON and
            arrays are decoded by their names; with ``"bytes"`` they stay bytes too, and dicts have ``__key__``.
        generation: which generation of a set that has grown; the newest if not given.
        index: the folder of the catalog and the tables, where they could not be written beside the shards.
        client: who is let into a store of objects, and where its server is (`make_client`); None: as the environment
            says.
        cache: a folder in which runs of a set that is elsewhere are kept, over epochs and jobs.
        cache_limit: the most bytes that it may take.
        memory: the most bytes of memory that all processes of this host together hold of the set.
        egress_usd_per_gb: what a GB costs that leaves the region of the bucket, where it is trained elsewhere: then
            little is fetched that is not wanted, and the bill has it.
        stay: on how many hosts it is trained, each with a `cache` of its own: then each host is given the same part of
            the set in all epochs, in another order each time. Ranks of a host are neighbours, as torchrun counts them.
        allow_pickle: fields that run code when they are read (``.pyd``, ``.pth``) are read; else they are bytes.

    A worker that gets one opens its files itself; what travels is small.

    Example:
        >>> dataset = ShardDataset("imagenet/train", ("jpg", "cls"), decode="rgb8", transform=crop)
        >>> SwiftLoader.from_dataset(dataset, 256, nb_consumer=8, worker_per_consumer=4)
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        fields: str | Sequence[str] | None = None,
        *,
        transform: Callable[[Any], Any] | None = None,
        decode: str | None = "pil",
        generation: int | None = None,
        index: str | os.PathLike[str] | None = None,
        client: Client | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | None = None,
        memory: int | None = None,
        egress_usd_per_gb: float | None = None,
        stay: int = 1,
        allow_pickle: bool = False,
    ) -> None:
        self.url = os.fspath(url)
        self._elsewhere = Elsewhere(client, checked_options(cache, cache_limit, memory, egress_usd_per_gb))
        self._job = secrets.token_hex(8)
        self._stay = whole("stay", stay, least=1)
        self._index = None if index is None else os.fspath(index)
        self.transform = transform
        self._fields = fields
        self._decoding = Decoding(decode, allow_pickle=allow_pickle)
        self._asked = generation
        self._open()

    def _open(self) -> None:
        opened = open_set(self.url, self._asked, self._index, self._elsewhere)
        self.catalog: Catalog = opened.catalog
        """All that is known of the shards."""
        self._reading = Reading(opened, self._job)
        self._layout = opened.layout
        self._wish()

    def _wish(self) -> None:
        if self._layout is None:
            in_full = self._decoding.is_none
            self._wishes = Wishes(self._fields, partial(decoder_in_tars, decoding=self._decoding), in_full=in_full)
        else:
            self._wishes = wishes_in_place(self._layout, self._fields, self._decoding)
        self._together = None if self._reading.is_elsewhere else Together(self._reading.shards, self._wishes)

    def asking(self, fields: str | Sequence[str] | None, decoding: Decoding) -> ShardDataset:
        """The same set, with the shards that are open, of which other fields are wanted."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _fields=fields, _decoding=decoding)
        other._wish()
        return other

    #: Whether `follow` takes the indices of some samples, which a Subset of torch's is asked for.
    follows_parts = True

    def follow(self, plan: Any, consumer: int, indices: Sequence[int] | NDArray[np.int64] | None = None) -> None:
        """Says which plan's steps will be made here, for which consumer: then what they need is fetched ahead.

        Args:
            plan: It knows which samples make which batch.
            consumer: Whose batches.
            indices: Of the samples that the plan is of; None: all of them.
        """
        terms = METERED if self._elsewhere.is_metered else FREE
        self._reading.follow(plan if indices is None else PlanOfSome(plan, indices, self.catalog, terms), consumer)

    def turn_to(self, epoch: int, step: int) -> None:
        """A batch of that plan is begun here."""
        self._reading.turn_to(epoch, step)

    def statistics(self) -> dict[str, Any] | None:
        """What this host's fetcher has counted since it began; None where nothing is fetched."""
        return self._reading.statistics()

    #: A loader asks by this name: datasets of users may have others.
    store_statistics = statistics

    @property
    def generation(self) -> int:
        """Which generation of the set this is."""
        return self.catalog.generation

    def __len__(self) -> int:
        return self.catalog.samples

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([place(index, len(self))])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples at once, as torch and SwiftLoader ask for those of a batch."""
        samples: list[Any] = [None] * len(indices)
        for shard, entries, at in self._reading.brought(indices):
            wanted = self._wishes.of(shard.table)
            for entry, row in zip(entries.tolist(), at, strict=True):
                sample = _decoded(wanted, shard, entry)
                samples[row] = sample if self.transform is None else self.transform(sample)
        return samples

    @property
    def read_into(self) -> Callable[[Sequence[int], Any], None]:
        """Writes samples to their rows in a batch; only where all that is asked for are numbers, or arrays alike."""
        if self.transform is not None or not len(self) or not self._wishes.of(self._reading.shards[0].table).are_rows:
            raise AttributeError("samples of this dataset have no rows: a transform, or fields of several sizes")
        return self._read_into

    def _read_into(self, indices: Sequence[int], rows: Any) -> None:
        if self._together is not None and self._together.read_into(*self._reading.located(indices), rows):
            return
        for shard, entries, at in self._reading.brought(indices):
            self._wishes.of(shard.table).read_into(shard, entries, rows, at)

    def key(self, index: int) -> str:
        """The key of a sample: what its files are called in the tar, up to the dot."""
        ((shard, entries, _),) = self._reading.found([index])
        return shard.table.key(int(entries[0]))

    def keys(self) -> Iterator[str]:
        """All keys, in the order of the samples."""
        for shard in self._reading.each_shard():
            table = shard.table
            yield from map(table.key, range(table.samples))

    @property
    def fields(self) -> list[str]:
        """The fields that samples have, as the first shard tells."""
        return [field.name for field in self._reading.shards[0].table.fields]

    def column(self, name: str) -> NDArray[Any]:
        """A number of each sample (its class, its length), without reading the samples.

        For weights, buckets, or a look at what there is: ``np.bincount(dataset.column("cls"))``.
        """
        parts = [shard.column(name) for shard in self._reading.each_shard()]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def where(self, **columns: Any) -> Selection:
        """The samples whose columns are so: a number, several, or a function of the column that gives True or False.

        Example:
            >>> dataset.where(cls=[3, 7], height=lambda height: height >= 224)
        """
        chosen = np.ones(len(self), bool)
        for name, wanted in columns.items():
            column = self.column(name)
            chosen &= np.asarray(wanted(column), bool) if callable(wanted) else np.isin(column, wanted)
        return Selection(self, np.flatnonzero(chosen))

    def runs(self) -> NDArray[np.int64] | Runs:
        """How many samples lie side by side in each stretch of a few megabytes, shard by shard."""
        rows = self.catalog.rows
        lengths = extents(rows["count"], rows["object_nbytes"])
        return lengths if self._stay == 1 else Runs(lengths, self._stay)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_asked": self.generation or None}
        for name in ("_reading", "catalog", "_wishes", "_layout", "_together"):
            del state[name]
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __repr__(self) -> str:
        shards = len(self.catalog.rows)
        return f"<ShardDataset {self.url}, {len(self):,} samples in {shards:,} shards, generation {self.generation}>"


def _decoded(wanted: Granted, shard: OpenShard, entry: int) -> Any:
    try:
        return wanted.sample(shard, entry)
    except ShardError:
        raise
    except Exception as error:
        key = shard.table.key(entry)
        raise DataError(f"sample {key!r} of {shard.where}/{shard.name} cannot be decoded: {error}") from error
