"""Bytes of objects, asked for until they are right: what the client of stores does not do by itself.

A request that takes longer than its like gets a second one beside it, and the first that answers is taken. Where the
store does not answer at all, one request after the other looks whether it does again, for all. Keys that have
expired are renewed once. What comes must be as long as was asked for, and of the same object as before.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import urllib.error
import urllib.request
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from swift_loader.errors import ShardError
from swift_loader.fetcher.counts import Counts
from swift_loader.stores.answers import Kind, Trouble
from swift_loader.stores.obstore import Failed, Objects, Part

if TYPE_CHECKING:
    from swift_loader.shards.url import Place
    from swift_loader.stores.client import Client
    from swift_loader.stores.protocol import Found

#: So long the store may be away; and so long, if it has never been there.
_BUDGET_S, _FIRST_BUDGET_S = 120.0, 8.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 2.0, 4.0
_PATIENCE_S, _PATIENCE_UNKNOWN_S, _SLOWER = 0.3, 1.0, 3.0
#: A request that brings less in a second is given up.
_FLOOR_NBYTES, _FLOOR_S = 256 << 10, 3.0
_AT_ONCE = 3
_REMEMBERED = 64
_ODD_TIMES, _CUT_TIMES = 2, 8
_MOST_RETRY_AFTER_S = 60.0
#: An object that is not there is not asked for again so soon.
_MISSING_S = 5.0


class Network:
    """Asks one folder of a store."""

    def __init__(self, place: Place, client: Client, counts: Counts) -> None:
        self.objects = Objects(place, client)
        self._client = client
        self._counts = counts
        self._took: dict[int, deque[float]] = {}
        """How long requests took, by the magnitude of what they asked for."""
        self._missing: dict[str, tuple[float, Trouble]] = {}
        self._has_answered = False
        self._pause_s = 0.0
        """While the store does not answer."""
        self._resume_s = 0.0
        self._probing = asyncio.Lock()
        self._keys = 0
        self._in_flight = self._hedges = 0

    async def get(self, name: str, begin: int, end: int | None, etag: str | None = None) -> Part:
        """Bytes of an object, all of them.

        Raises:
            FileNotFoundError: if there is no such object.
            ShardError: if they cannot be had.
        """
        until = monotonic() + (_BUDGET_S if self._has_answered else _FIRST_BUDGET_S)
        left = {Kind.ODD: _ODD_TIMES, Kind.CUT: _CUT_TIMES, Kind.EXPIRED: 2, Kind.LATER: 1 << 30}
        self._refuse_missing(name)
        while True:
            keys = self._keys
            try:
                part = await self._asked(name, begin, end, etag)
                self._check(part, begin, end, etag)
                return part
            except Failed as error:
                kind = error.trouble.kind
                left[kind] = left.get(kind, 1) - 1
                if kind is Kind.MISSING:
                    self._missing[name] = monotonic(), error.trouble
                if left[kind] <= 0 or monotonic() > until:
                    raise self._error(error.trouble, name) from None
                self._counts.retries += 1
                if kind in (Kind.EXPIRED, Kind.ODD):
                    self._renew(keys, is_expired=kind is Kind.EXPIRED)

    async def listed(self) -> list[Found]:
        """All objects of the folder.

        Raises:
            ShardError: if they cannot be listed.
        """
        try:
            return await self.objects.found()
        except Failed as error:
            raise self._error(error.trouble, None) from None

    def expected_s(self, nbytes: int) -> float | None:
        """How long such a request takes, as far as is known."""
        took = self._took.get(nbytes.bit_length())
        return sorted(took)[len(took) // 2] if took else None

    def _refuse_missing(self, name: str) -> None:
        when, trouble = self._missing.get(name, (0.0, None))
        if trouble is not None and monotonic() < when + _MISSING_S:
            raise self._error(trouble, name)

    def _error(self, trouble: Trouble, name: str | None) -> Exception:
        return self.objects.error(trouble, name)

    def _renew(self, keys: int, *, is_expired: bool) -> None:
        if keys == self._keys:  # nobody has meanwhile
            self._keys += 1
            self._counts.renewals += is_expired
            self.objects.renew()

    def _check(self, part: Part, begin: int, end: int | None, etag: str | None) -> None:
        found = memoryview(part.data).nbytes
        if etag is not None and part.etag is not None and part.etag != etag:
            raise Failed(Trouble(Kind.CHANGED, None))
        if end is not None and part.nbytes < end:
            raise Failed(Trouble(Kind.CHANGED, None))
        if found != (part.nbytes if end is None else end - begin):
            raise Failed(Trouble(Kind.ODD, None))

    async def _asked(self, name: str, begin: int, end: int | None, etag: str | None) -> Part:
        """Asks once, or twice at the same time; where the store does not answer, one after the other."""
        if not self._pause_s:
            return await self._noted(name, begin, end, etag)
        async with self._probing:
            if self._pause_s:
                await asyncio.sleep(max(0.0, self._resume_s - monotonic()))
                return await self._noted(name, begin, end, etag)
        return await self._noted(name, begin, end, etag)

    async def _noted(self, name: str, begin: int, end: int | None, etag: str | None) -> Part:
        try:
            part = await self._hedged(name, begin, end, etag)
        except Failed as error:
            if error.trouble.kind is Kind.LATER:
                await self._note_outage(error.trouble, name)
            else:
                self._has_answered = self._has_answered or error.trouble.status is not None
            raise
        self._pause_s, self._has_answered = 0.0, True
        return part

    async def _note_outage(self, trouble: Trouble, name: str) -> None:
        self._pause_s = min(_LAST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s))
        wait_s = self._pause_s * random.uniform(0.8, 1.0)  # noqa: S311 - so that hosts do not ask in step
        if trouble.status in (429, 503):
            wait_s = max(wait_s, await asyncio.to_thread(self._retry_after_s, name))
        self._resume_s = monotonic() + wait_s

    def _retry_after_s(self, name: str) -> float:
        """What the store asks for: the client does not tell, so it is asked once more, by an address that is signed."""
        url = self.objects.signed(name)
        if url is None:
            return 0.0
        trusted = None
        if url.startswith("https:"):
            trusted = ssl.create_default_context(cafile=self._client.certificates)
        request = urllib.request.Request(url, headers={"Range": "bytes=0-0"})  # noqa: S310 - of a store's own address
        try:
            with urllib.request.urlopen(request, timeout=3.0, context=trusted):  # noqa: S310 - as above
                return 0.0
        except urllib.error.HTTPError as error:
            said = error.headers.get("Retry-After", "")
            error.close()
            return min(_MOST_RETRY_AFTER_S, float(said)) if said.isascii() and said.isdigit() else 0.0
        except (OSError, ValueError):
            return 0.0

    async def _hedged(self, name: str, begin: int, end: int | None, etag: str | None) -> Part:
        nbytes = (end or 0) - begin
        begun, patience_s = monotonic(), self._patience_s(nbytes)
        tasks = [asyncio.ensure_future(self._once(name, begin, end, etag))]
        hedges = 0
        try:
            while True:
                done, _ = await asyncio.wait(tasks, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                right = [task for task in done if task.exception() is None]
                if right or len(done) == len(tasks):
                    part = (right or list(done))[0].result()  # or raises
                    self._took.setdefault(nbytes.bit_length(), deque(maxlen=_REMEMBERED)).append(monotonic() - begun)
                    return part
                tasks = [task for task in tasks if task not in done]
                if monotonic() - begun > (hedges + 1) * (_FLOOR_S + nbytes / _FLOOR_NBYTES):
                    raise Failed(Trouble(Kind.LATER, None))
                if not done and self._hedges <= self._in_flight // 4 and len(tasks) < _AT_ONCE:
                    hedges += 1
                    self._hedges += 1
                    self._counts.hedges += 1
                    tasks.append(asyncio.ensure_future(self._once(name, begin, end, etag)))
                    patience_s *= 2
        finally:
            self._hedges -= hedges
            for task in tasks:
                task.cancel()

    async def _once(self, name: str, begin: int, end: int | None, etag: str | None) -> Part:
        self._counts.requests += 1
        self._in_flight += 1
        try:
            return await self.objects.part(name, begin, end, etag)
        finally:
            self._in_flight -= 1

    def _patience_s(self, nbytes: int) -> float:
        took = self._took.get(nbytes.bit_length())
        if not took:
            return _PATIENCE_UNKNOWN_S
        return max(_PATIENCE_S, _SLOWER * sorted(took)[int(len(took) * 0.95)])


def changed(name: str, where: str, generation: int, expected: object, found: object) -> ShardError:
    """An object is not the one that the catalog tells of."""
    text = f"the object has been changed under us: generation {generation} of the set tells of another one"
    return ShardError.at(text, None, expected, found).within(name, where)
