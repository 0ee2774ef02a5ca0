"""Bytes of objects, asked for until they are right: what the client of stores does not do by itself.

A request that takes longer than its like gets a second one beside it; one that is cut goes on where it ended. Where the
store does not answer at all, one request after the other looks whether it does again, for all. Keys that have
expired are renewed once. What comes must be as long as was asked for, and of the same object as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.errors import ShardError
from swift_loader.fetcher.arriving import Arriving
from swift_loader.fetcher.counts import Counts
from swift_loader.fetcher.outage import Outage
from swift_loader.fetcher.racing import Racing
from swift_loader.stores.answers import Kind, Trouble
from swift_loader.stores.obstore import Failed, Objects

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

    from swift_loader.shards.url import Place
    from swift_loader.stores.client import Client
    from swift_loader.stores.protocol import Found

#: So long the store may be away; and so long, if it was never there: a machine that is busy is slow, and not gone.
_BUDGET_S, _FIRST_BUDGET_S = 120.0, {Kind.NOWHERE: 1.0, Kind.LATER: 8.0}
#: How often an answer may be of that kind.
_AWAY = (Kind.LATER, Kind.SILENT, Kind.NOWHERE)
_TIMES = {Kind.ODD: 2, Kind.CUT: 8, Kind.EXPIRED: 2, **dict.fromkeys(_AWAY, 1 << 30)}
#: An object that is not there is not asked for again so soon.
_MISSING_S = 5.0
_AT_ONCE = 64
#: A list that takes so long is asked for again; the last of them may take longest, since lists may be long.
_LIST_S = (4.0, 8.0, 120.0)


class Part(NamedTuple):
    """Bytes of an object."""

    data: Buffer
    etag: str | None
    nbytes: int
    """Of the whole object."""


class Network:
    """Asks one folder of a store."""

    def __init__(self, place: Place, client: Client, counts: Counts) -> None:
        self.objects = Objects(place, client, retries=False)
        self._counts = counts
        self.outage = Outage(client, counts)
        self.racing = Racing(counts)
        self._missing: dict[str, tuple[float, Trouble]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._keys = 0

    async def get(self, name: str, begin: int, end: int | None, etag: str | None = None, into: Any = None) -> Part:
        """Bytes of an object, all of them.

        Args:
            name: Of the object.
            begin: The first byte.
            end: Behind the last one; None: all of the object.
            etag: What the object must be still.
            into: Where they are put, an array of bytes; None: into memory of their own.

        Raises:
            FileNotFoundError: if there is no such object.
            ShardError: if they cannot be had.
        """
        when, trouble = self._missing.get(name, (0.0, None))
        if trouble is not None and monotonic() < when + _MISSING_S:
            raise self.objects.error(trouble, name)
        arriving = Arriving(name, begin, end, etag, into)
        async with self._places:
            await self._until_right(name, lambda: self.racing.run(self.objects, arriving), lambda: arriving.covered)
        return Part(arriving.data, arriving.etag, arriving.nbytes)

    async def listed(self) -> list[Found]:
        """All objects of the folder.

        Raises:
            ShardError: if they cannot be listed.
        """
        found: list[Found] = []

        async def ask() -> None:
            self._counts.asked()
            try:
                found[:] = await _soon(self.objects.found)
            finally:
                self._counts.answered()

        await self._until_right(None, ask, lambda: 0)
        return found

    async def _until_right(
        self, name: str | None, ask: Callable[[], Awaitable[None]], covered: Callable[[], int]
    ) -> None:
        begun_s, left, seen, times = monotonic(), dict(_TIMES), covered(), 0
        while True:
            keys, asked_s, held = self._keys, monotonic(), await self.outage.passed()
            try:
                await ask()
                self.outage.answered()
                return
            except Failed as error:
                trouble = await self._looked_at(error.trouble, name, asked_s, times)
            finally:
                self.outage.over(held=held)
            if covered() != seen:  # what comes in pieces comes
                begun_s, seen, left, times = monotonic(), covered(), dict(_TIMES), 0
            left[trouble.kind] = left.get(trouble.kind, 1) - 1
            times += 1
            if left[trouble.kind] <= 0 or monotonic() > begun_s + self._budget_s(trouble.kind):
                if trouble.kind is Kind.MISSING and name is not None:
                    self._missing[name] = monotonic(), trouble
                raise self.objects.error(trouble, name) from None
            self._counts.retries += 1
            if trouble.kind in (Kind.EXPIRED, Kind.ODD):
                self._renew(keys, is_expired=trouble.kind is Kind.EXPIRED)

    async def _looked_at(self, trouble: Trouble, name: str | None, asked_s: float, times: int) -> Trouble:
        if trouble.kind in _AWAY:
            return await self.outage.failed(self.objects, name or "", trouble, asked_s, times)
        if trouble.status is not None:
            self.outage.has_answered = True
        return trouble

    def _budget_s(self, kind: Kind) -> float:
        return _BUDGET_S if self.outage.has_answered else _FIRST_BUDGET_S.get(kind, _BUDGET_S)

    def _renew(self, keys: int, *, is_expired: bool) -> None:
        if keys == self._keys:  # nobody has meanwhile
            self._keys += 1
            self._counts.renewals += is_expired
            self.objects.renew()


async def _soon(ask: Callable[[], Awaitable[list[Found]]]) -> list[Found]:
    """What that gives; what takes long is asked for again."""
    tasks: set[asyncio.Task[list[Found]]] = set()
    try:
        for wait_s in _LIST_S:
            tasks.add(asyncio.ensure_future(ask()))
            done, tasks = await asyncio.wait(tasks, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done.pop().result()
        raise Failed(Trouble(Kind.SILENT, None))
    finally:
        for task in tasks:
            task.cancel()


def changed(name: str, where: str, generation: int, expected: object, found: object) -> ShardError:
    """An object is not the one that the catalog tells of."""
    text = f"the object has been changed under us: generation {generation} of the set tells of another one"
    return ShardError.at(text, None, expected, found).within(name, where)
