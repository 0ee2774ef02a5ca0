"""A set that is elsewhere, as a process that reads it has it: the fetcher's memory, and what the fetcher is told.

The fetcher knows the plan and how far its workers are, and so has most of what a batch needs in memory before it is
asked for. What it has not is asked for, all of a batch at once. Who copies checks the copy; so a stretch that is taken
away meanwhile, a fetcher that dies, and bytes that are damaged are all seen, and asked for again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import digest_of
from swift_loader.shards.catalog import Catalog, Kind
from swift_loader.shards.folder import Folder
from swift_loader.shards.spans import spans
from swift_loader.shards.table import Table
from swift_loader.shards.tar import BLOCK
from swift_loader.shards.upcoming import FREE, METERED, need_of_steps
from swift_loader.shards.url import Place
from swift_loader.stores.fetched import Fetched
from swift_loader.stores.link import Link
from swift_loader.stores.messages import in_memory
from swift_loader.stores.page import Arena, Stretch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.host.mapping import Bytes
    from swift_loader.plan.epoch_lanes import Need
    from swift_loader.shards.opened import OpenShard
    from swift_loader.shards.sets import OpenedSet

#: A stretch is asked for again when it was taken away while it was copied; not for ever.
_TIMES = 64
_WANTED = "wanted"
#: Of a plan without runs so many steps are told at a time.
_STEPS = 32


class RemoteSet:
    """One generation of a set.

    Args:
        fetched: The store.
        catalog: Its shards.
        tables: The store of the tables, where that is another one.
    """

    def __init__(self, fetched: Fetched, catalog: Catalog, tables: Fetched | Folder | None = None) -> None:
        self.fetched, self.catalog = fetched, catalog
        self._tables = tables
        self.terms = METERED if "egress_usd_per_gb" in fetched.options else FREE
        self.number = digest_of(catalog.data) & 0x7FFFFFFF
        self.follower = Following(self)

    def link_of(self, link: Link) -> Link:
        """The connection, by which the fetcher has been told of the set."""
        if self.number not in link.told:
            words: dict[str, Any] = {"set": self.number}
            fds = [in_memory(self.catalog.data)]
            try:
                if isinstance(self._tables, Fetched):
                    client = self._tables.client
                    words.update(tables=self._tables.place, tables_client=client.options())
                    fds.append(os.dup(client.credentials.fd))
                elif self._tables is not None:
                    words["tables"] = Place("file", "", self._tables.where)
                link.ask(words, fds).close()
            finally:
                for fd in fds:
                    os.close(fd)
            link.told.add(self.number)
        return link

    def tables(self, numbers: Sequence[int], opened: OpenedSet) -> list[Table | None]:
        """The tables of several shards, read at the same time; None for those that have none, or a damaged one."""
        told = [self.catalog.shard(number) for number in numbers]
        wanted: list[tuple[str, int, int]] = []
        store = self.fetched
        for shard in told:
            if shard.kind == Kind.TAR:
                wanted.append((shard.name, shard.table_offset, shard.table_nbytes))
            else:
                wanted.append((shard.name + ".swift", shard.table_offset, shard.table_nbytes))
        if any(shard.kind != Kind.TAR for shard in told):
            if not isinstance(opened.tables, Fetched) or not all(shard.table_nbytes for shard in told):
                return [None] * len(told)
            store = opened.tables
        tables: list[Table | None] = []
        for shard, data in zip(told, store.read_many(wanted), strict=True):
            room = shard.table_offset - BLOCK if shard.kind == Kind.TAR else shard.object_nbytes
            try:
                tables.append(Table.read(data, room, shard.table_digest))
            except ShardError:  # it may be damaged on its way: who needs it reads it once more
                tables.append(None)
        return tables

    def bring(self, shards: Sequence[tuple[OpenShard, NDArray[np.int64]]]) -> None:
        """Has all these samples be there, before the first of them is read."""

        def do(link: Link) -> None:
            self.have(link, [one for shard, samples in shards for one in self._missing(link.arena, shard, samples)])

        self.fetched.by_link(do)

    def have(self, link: Link, missing: Sequence[tuple[int, int, int, int]]) -> None:
        """Has what is missing be there, until it is said that it is copied."""
        if missing:
            self.want(missing)
            link.told.add(_WANTED)

    def done(self) -> None:
        """What was brought is copied."""

        def do(link: Link) -> None:
            if _WANTED in link.told:
                link.told.discard(_WANTED)
                link.tell({"done": 1})

        self.fetched.by_link(do)

    def _missing(self, arena: Arena, shard: OpenShard, samples: NDArray[np.int64]) -> list[tuple[int, int, int, int]]:
        file = shard.file
        assert isinstance(file, RemoteFile)
        begins, ends = spans(shard.table, samples)
        there = file.stretches(arena)
        numbers = samples + self.catalog.bounds[file.number]
        return [
            (file.number, begin, end, number)
            for begin, end, number in zip(begins.tolist(), ends.tolist(), numbers.tolist(), strict=True)
            if end > begin and not any(one.begin <= begin and end <= one.end for one in there)
        ]

    def want(self, ranges: Sequence[tuple[int, int, int, int]], *, fresh: bool = False) -> None:
        """Has ranges of shards come, each with its sample; with ``fresh``, what is there was damaged."""
        words = {"want": list(ranges), "set": self.number, "by": self.follower.name}
        words |= {"fresh": True} if fresh else {}
        self.fetched.by_link(lambda link: self.link_of(link).ask(words).close())


class RemoteFile:
    """One shard, to be read as `host.mapping.MappedFile` is."""

    def __init__(self, of: RemoteSet, number: int, nbytes: int) -> None:
        self._of, self.number, self.nbytes = of, number, nbytes
        self.key = of.number << 32 | number
        self.data: Bytes = np.broadcast_to(np.zeros(1, np.uint8), (nbytes,))
        """Nothing of it is here: `are_there` says so."""
        self._known: tuple[Arena | None, list[Stretch]] = (None, [])

    def is_there(self) -> bool:
        """Whether all of it may be touched."""
        return False

    def are_there(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
        """Whether all bytes from each begin to its end may be touched."""
        return not len(begins) and not len(ends)

    def stretches(self, arena: Arena) -> list[Stretch]:
        """What of it is in the fetcher's memory now."""
        found = arena.page.of(self.key)
        self._known = arena, found
        return found

    def bring(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """They will be copied soon: what of them is not there is fetched together."""

        def do(link: Link) -> None:
            there = self.stretches(link.arena)
            self._of.have(link, [
                (self.number, begin, end, -1)
                for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
                if not any(one.begin <= begin and end <= one.end for one in there)
            ])  # fmt: skip

        self._of.fetched.by_link(do)

    def copy(self, offset: int, target: Any) -> None:
        """Fills ``target``, an array of bytes that lies in one piece.

        Raises:
            ShardError: if they cannot be had.
        """
        if not target.nbytes:
            return
        for _ in range(_TIMES):
            if self._of.fetched.by_link(lambda link: self._copied(link.arena, offset, target)):
                return
            self._of.want([(self.number, offset, offset + target.nbytes, -1)])
        raise ShardError.at("there is too little memory to hold what is read (memory=)", offset)

    def _copied(self, arena: Arena, offset: int, target: Any) -> bool:
        end = offset + target.nbytes
        known, stretches = self._known
        for ones in (stretches if known is arena else (), None):
            for stretch in self.stretches(arena) if ones is None else ones:
                if stretch.begin <= offset and end <= stretch.end and arena.copy(stretch, offset, target):
                    return True
        return False

    def again(self, begin: int, end: int) -> bool:
        """Has bytes that were damaged where they landed fetched anew."""
        self._of.want([(self.number, begin, end, -1)], fresh=True)
        return True

    def close(self) -> None:
        """There is nothing to be closed."""


class Following:
    """What the fetcher is told of the plan, by one process."""

    def __init__(self, of: RemoteSet) -> None:
        self._of = of
        self._plan: Any = None
        self._consumer = 0
        self.job = secrets.token_hex(8)
        """All processes of one training say the same."""

    @property
    def name(self) -> str:
        """What the fetcher calls those who make one consumer's batches."""
        return f"{self.job}-{self._consumer}"

    def begin(self, plan: Any, consumer: int) -> None:
        """The steps of that plan will be made here."""
        self._plan, self._consumer = plan, consumer

    def turn_to(self, epoch: int, step: int) -> None:
        """A batch is begun."""
        if self._plan is not None:
            self._of.fetched.by_link(lambda link: self._told(self._of.link_of(link), epoch, step))

    def _told(self, link: Link, epoch: int, step: int) -> None:
        name = self.name
        words = {"turn": [self._of.number, name, epoch, step]}
        if ("epoch", name, epoch) in link.told:
            answer = link.tell(words)
        else:
            message = link.ask(words)
            answer = message.words
            message.close()
            link.told.add(("epoch", name, epoch))
        for wanted in answer.get("tell", ()):
            self._tell_need(link, name, wanted, step if wanted == epoch else 0)
        if "steps" in answer:
            self._tell_steps(link, name, *answer["steps"])

    def _tell_need(self, link: Link, name: str, epoch: int, step: int) -> None:
        need = self._plan.need(epoch, self._consumer) if hasattr(self._plan, "need") else None
        if need is None:
            self._tell_steps(link, name, epoch, step)
        else:
            self._tell(link, {"need": [self._of.number, name, epoch, None]}, need)

    def _tell_steps(self, link: Link, name: str, epoch: int, step: int) -> None:
        """Of plans that know of no runs, what some steps need: more is told when these are gone through."""
        batches = self._plan.indices(epoch, self._consumer, step, _STEPS)
        need = need_of_steps(batches, step, self._of.catalog, self._of.terms)
        self._tell(link, {"need": [self._of.number, name, epoch, step + _STEPS]}, need)

    def _tell(self, link: Link, words: dict[str, Any], need: Need) -> None:
        fd = in_memory(np.stack(need).astype(np.int64).tobytes())
        try:
            link.ask(words, [fd]).close()
        finally:
            os.close(fd)
