"""A set in a bucket as a stream of samples or batches, for torch's DataLoader, and by index for SwiftLoader.

Stands before a `ShardDataset`. Of torch it knows what a DataLoader's worker is told, and no more.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from swift_loader.errors import ConfigError
from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.runs import Runs
from swift_loader.plan.seeding import batch_key
from swift_loader.settings.checks import whole
from swift_loader.shards import clients
from swift_loader.shards.borrowed import Borrowed, BorrowedStore, LocalCopy
from swift_loader.shards.chain import Chain, Links
from swift_loader.shards.dataset import ShardDataset
from swift_loader.shards.decode import Decoding
from swift_loader.shards.epochs import Epochs
from swift_loader.shards.flow import flowing
from swift_loader.shards.places import Rank, joined, rank_of, torch_worker
from swift_loader.shards.stages import DROPPED, Decode, Stage, ToTuple, through
from swift_loader.shards.uncatalogued import OwnIndex, needs_index
from swift_loader.shards.units import Units

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Runs that a rank mixes at a time, as SwiftLoader does.
_MIX = 64
#: As many samples one by one are planned as one step, so that they are mixed as batches are.
_TOGETHER = 64


class RemoteDataset(Chain):
    """The samples of a set in a bucket's folder, for torch's DataLoader or for SwiftLoader.

    Iterated, it gives this rank's share of an epoch, and each iteration is the next epoch, in another order. A
    DataLoader's workers deal its batches among them: the stream is the same for any number of them. Ranks get the same
    number of batches; who they are torch.distributed says, else RANK and WORLD_SIZE.

    Each method gives a new dataset, with one stage more. With stages for single samples alone (decode, to_tuple, map,
    map_tuple, map_dict, rename, select_fields) it can be asked by index too, and SwiftLoader takes it.

    Args:
        client: What `make_client` gives.
        bucket: The bucket; with a folder in place of a server, the folder in there.
        folder: Where in the bucket the set lies: the whole prefix, not its beginning.
        shuffle: Whether each epoch has an order of its own, or all have that of the set.
        seed: With the epoch's number it decides the order: the same on all ranks.
        generation: Which generation of a set that has grown; the newest if not given.
        cache: A folder in which parts of a set in a store are kept, over epochs and jobs.
        cache_limit: The most bytes that it may take.
        memory: The most bytes of memory that all processes of this host together hold of the set.

    Example:
        >>> dataset = (
        ...     RemoteDataset(client, "bucket", "imagenet-val")
        ...     .decode("pil").to_tuple("jpg;png", "cls").map_tuple(preprocess, int).batched(64)
        ... )
        >>> loader = torch.utils.data.DataLoader(dataset, num_workers=3, batch_size=None)
    """

    def __init__(
        self,
        client: Any,
        bucket: str,
        folder: str,
        shuffle: bool = True,  # noqa: FBT001, FBT002 - as it always was
        *,
        seed: int = 0,
        generation: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | None = None,
        memory: int | None = None,
    ) -> None:
        self._set = (bucket, folder)
        self._shuffle, self._seed = shuffle, seed
        self._copy: LocalCopy | None = None
        if isinstance(client, Borrowed):
            self._copy = LocalCopy(BorrowedStore(client.client, bucket, folder))
            client, bucket, folder = clients.FolderClient(self._copy.path), "", ""
        place = clients.where(client, bucket, folder)
        self._own_index = OwnIndex(place) if generation is None and needs_index(place) else None
        self._source = ShardDataset(
            place.url, None, decode="bytes", generation=generation, client=place.client,
            index=None if self._own_index is None else self._own_index.path,
            cache=cache, cache_limit=cache_limit, memory=memory,
        )  # fmt: skip
        self._links = Links()
        self._rank: Rank | None = None
        self._begin()
        _known_to_torch(type(self))

    def _begin(self) -> None:
        """What each link of a chain has of its own. The page must be there before workers are forked."""
        self._epochs = Epochs()
        self._reader, self._left = _reading(self._source, self._links.samples)
        self.__dict__.pop("_plans", None)

    def _with(self, links: Links) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _links=links)
        other._begin()
        return other

    # ---- as a stream ------------------------------------------------------------------------------------------------

    @cached_property
    def _plans(self) -> dict[int, Units]:
        return {}

    def _units(self, ranks: int) -> Units:
        units = self._plans.get(ranks)
        if units is None:
            batching = self._links.batching
            plan = EpochPlan(
                sample_count=len(self._source), batch_size=_TOGETHER if batching is None else batching.size,
                consumer_count=ranks, shuffle=self._shuffle, seed=self._seed, mix=_MIX,
                even="none" if batching is None else "balance",
                drop_last=batching is not None and not batching.partial,
                runs=Runs(self._source.runs()) if self._shuffle else None,
            )  # fmt: skip
            units = self._plans[ranks] = Units(plan, is_single=batching is None)
        return units

    def __len__(self) -> int:
        links = self._links
        if links.length is not None:
            return links.length
        if links.flows:
            raise TypeError("nobody knows how much select, unbatched and then let through: with_length(...) says it")
        rank = rank_of(self._rank)
        return links.course.count(self._units(rank.world).count(rank.number))

    def __iter__(self) -> Iterator[Any]:
        worker, rank = torch_worker(), rank_of(self._rank)
        epoch = self._epochs.next(rank.number, worker.seed)
        made = self._made(rank, epoch, worker.number, worker.among)
        key = batch_key(self._seed, epoch, rank.number, worker.number)
        return flowing(made, self._links.flows, key)

    def _made(self, rank: Rank, epoch: int, first: int, stride: int) -> Iterator[Any]:
        links, units = self._links, self._units(rank.world)
        steps = units.count(rank.number)
        self._reader.follow(units.plan, rank.number)
        for place in range(first, links.course.count(steps), stride):
            at = links.course.at(steps, epoch, place)
            self._reader.turn_to(*units.step_of(*at, rank.number))
            indices = units.at(*at, rank.number)
            samples = [
                made
                for sample in self._reader.__getitems__(indices)
                if (made := through(self._left, sample)) is not DROPPED
            ]
            if not samples:
                continue
            if links.batching is None:
                yield samples[0]
            elif (batch := through(links.batches, links.batching.batch(samples))) is not DROPPED:
                yield batch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, and those behind it count on from there."""
        self._epochs.start_from(whole("set_epoch", epoch, least=0))

    # ---- by index ---------------------------------------------------------------------------------------------------

    def by_index(self) -> Indexed:
        """The samples by index, for a DataLoader that is to have its own order (``shuffle=True``, a sampler)."""
        return Indexed(self)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples at once."""
        self._check_is_indexed()
        made = [through(self._left, sample) for sample in self._reader.__getitems__(indices)]
        if any(sample is DROPPED for sample in made):
            raise ConfigError(
                "a handler has left a sample out, which has an index: on_error='skip' of SwiftLoader does"
            )
        return made

    def follow(self, plan: Any, consumer: int) -> None:
        """As `ShardDataset.follow`: SwiftLoader calls it."""
        self._reader.follow(plan, consumer)

    def turn_to(self, epoch: int, step: int) -> None:
        """As `ShardDataset.turn_to`: SwiftLoader calls it."""
        self._reader.turn_to(epoch, step)

    def statistics(self) -> dict[str, Any] | None:
        """As `ShardDataset.statistics`: what this host's fetcher has counted."""
        return self._source.statistics()

    store_statistics = statistics

    def runs(self) -> NDArray[Any] | Runs:
        """As `ShardDataset.runs`: SwiftLoader asks for them."""
        self._check_is_indexed()
        return self._source.runs()

    @property
    def read_into(self) -> Callable[[Sequence[int], Any], None]:
        """As `ShardDataset.read_into`, where nothing is done to samples that a set's reader does not do."""
        if self._left or not self._is_indexed:
            raise AttributeError("samples of this dataset have no rows: something is done to each")
        return self._reader.read_into

    @property
    def _is_indexed(self) -> bool:
        links = self._links
        return links.batching is None and not links.flows and not links.course.bends

    def _check_is_indexed(self) -> None:
        if not self._is_indexed:
            raise ConfigError(
                "a RemoteDataset with batched, select, slice or the like is a stream, and cannot be asked by index: "
                "leave them out, and give batch_size to the loader"
            )

    # ---- travelling -------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_rank": joined() or self._rank}
        for made in ("_plans", "_reader", "_left", "_copy", "_own_index"):  # made anew there, or this process's
            state.pop(made, None)
        if _is_starting_a_process():
            state["_links"] = _by_value(self._links)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["_links"], bytes):
            state = {**state, "_links": importlib.import_module("cloudpickle").loads(state["_links"])}
        self.__dict__.update(state)
        self._reader, self._left = _reading(self._source, self._links.samples)

    def __repr__(self) -> str:
        return f"<RemoteDataset {'/'.join(self._set)}, {len(self._source):,} samples>"


class Indexed:
    """The samples of a `RemoteDataset` by index, and nothing else."""

    def __init__(self, dataset: RemoteDataset) -> None:
        dataset._check_is_indexed()
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset._source)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples at once."""
        return self.dataset.__getitems__(indices)


def _reading(source: ShardDataset, stages: tuple[Stage, ...]) -> tuple[ShardDataset, tuple[Stage, ...]]:
    """What reads samples so far as a set's reader can, and the stages that are left: only what is wanted is read."""
    first = stages[0] if stages else None
    second = stages[1] if len(stages) > 1 else None
    if isinstance(first, Decode) and first.is_plain and isinstance(second, ToTuple) and second.is_plain:
        return source.asking(second.names, first.decoding), stages[2:]
    if isinstance(first, ToTuple) and first.is_plain:
        return source.asking(first.names, Decoding("bytes")), stages[1:]
    return source, stages


def _known_to_torch(kind: type) -> None:
    """To torch it is an IterableDataset from now on, with no class of torch's above it: workers need not load torch."""
    data = sys.modules.get("torch.utils.data") or importlib.import_module("torch.utils.data")
    data.IterableDataset.register(kind)


def _is_starting_a_process() -> bool:
    """Whether what is pickled now goes to a process that multiprocessing starts."""
    context = sys.modules.get("multiprocessing.context")
    return context is not None and context.get_spawning_popen() is not None


def _by_value(links: Links) -> bytes:
    """With lambdas, and functions of a script, which the pickles of multiprocessing cannot hold."""
    data: bytes = importlib.import_module("cloudpickle").dumps(links)
    return data
