"""Which shards samples are in, all at hand: mapped, or brought by the host's fetcher, who is told what comes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from swift_loader.shards.numbering import places
from swift_loader.shards.opened import OpenShard, OpenShards
from swift_loader.stores.page import AT_ONCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.shards.sets import OpenedSet

#: Tables of shards that are elsewhere are read so many at a time.
_TOGETHER = 64


class Piece(NamedTuple):
    """Some of the samples that were asked for: those of one shard."""

    shard: OpenShard
    entries: NDArray[np.int64]
    """Their numbers in there."""
    at: list[int]
    """Their places among all that were asked for."""


def _portions(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """So many samples at a time as a fetcher can have there at once, should each be fetched by itself."""
    portion: list[Piece] = []
    left = AT_ONCE
    for shard, entries, at in pieces:
        begin = 0
        while begin < len(at):
            end = min(len(at), begin + left)
            portion.append(Piece(shard, entries[begin:end], at[begin:end]))
            left -= end - begin
            begin = end
            if not left:
                yield portion
                portion, left = [], AT_ONCE
    if portion:
        yield portion


class Reading:
    """An open set, of which samples are read."""

    def __init__(self, opened: OpenedSet, job: str) -> None:
        self.catalog = opened.catalog
        self.shards = OpenShards(opened)
        self._remote = opened.remote
        if self._remote is not None:
            self._remote.follower.job = job

    @property
    def is_elsewhere(self) -> bool:
        """Whether it has to be fetched."""
        return self._remote is not None

    def located(self, indices: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of each sample's shard, and its place in there."""
        return self.catalog.locate(places(indices, self.catalog.samples))

    def found(self, indices: Sequence[int]) -> list[Piece]:
        """Where these samples are, by shard."""
        which, entries = self.located(indices)
        order = np.argsort(which, kind="stable")
        ordered, entries = which[order], entries[order]
        begins = np.flatnonzero(np.diff(ordered, prepend=-1))
        rows = order.tolist()
        pieces = list(itertools.pairwise([*begins.tolist(), len(rows)]))
        self.shards.bring([int(ordered[begin]) for begin, _ in pieces])
        return [Piece(self.shards[int(ordered[begin])], entries[begin:end], rows[begin:end]) for begin, end in pieces]

    def brought(self, indices: Sequence[int]) -> Iterator[Piece]:
        """The same, and what is elsewhere is here, or on its way; what was brought may go again at the end."""
        found = self.found(indices)
        if self._remote is None:
            yield from found
            return
        for some in _portions(found):
            self._remote.bring([(shard, entries) for shard, entries, _ in some])
            yield from some
            self._remote.done()

    def each_shard(self) -> Iterator[OpenShard]:
        """All of them, in order."""
        count = len(self.catalog.rows)
        for begin in range(0, count, _TOGETHER):
            numbers = range(begin, min(begin + _TOGETHER, count))
            self.shards.bring(numbers)
            yield from (self.shards[number] for number in numbers)

    def follow(self, plan: Any, consumer: int) -> None:
        """See `ShardDataset`."""
        if self._remote is not None:
            self._remote.follower.begin(plan, consumer)

    def turn_to(self, epoch: int, step: int) -> None:
        """See `ShardDataset`."""
        if self._remote is not None:
            self._remote.follower.turn_to(epoch, step)

    def statistics(self) -> dict[str, Any] | None:
        """See `ShardDataset`."""
        if self._remote is None:
            return None
        told, mine = self._remote.fetched.statistics(), f"{self._remote.follower.job}-"
        consumers = told["consumers"].items()
        told["consumers"] = {int(name[len(mine) :]): one for name, one in consumers if name.startswith(mine)}
        return told
