"""Whether the store answers. While it does not, one request after the other looks whether it does again, for all."""

from __future__ import annotations

import asyncio
import random
import ssl
import urllib.error
import urllib.request
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.fetcher.counts import Counts
from swift_loader.fetcher.waiting import happens
from swift_loader.stores.answers import Kind, Trouble
from swift_loader.stores.obstore import Objects

if TYPE_CHECKING:
    from swift_loader.stores.client import Client

_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 4.0
#: One that fails while others are answered is asked again so soon, and then twice as late each time.
_LONE_PAUSE_S, _LAST_LONE_PAUSE_S = 0.1, 2.0
_MOST_RETRY_AFTER_S = 60.0
_ASK_S = 3.0
_OVERRUN = (429, 503)


class Said(NamedTuple):
    """What a store answers where the client of stores tells of an error alone."""

    status: int
    retry_after_s: float


class Outage:
    """Keeps those who ask from a store that does not answer.

    Args:
        client: Who is let in.
        counts: What is counted.
    """

    def __init__(self, client: Client, counts: Counts) -> None:
        self._client, self._counts = client, counts
        self.has_answered = False
        """Whether the store was ever there."""
        self.overruns = 0
        """How often it has said that it is asked too much."""
        self._answered_s = 0.0
        self._pause_s = self._resume_s = 0.0
        self._told_s = 0.0
        """Until then the store itself wants to be left alone."""
        self._probing, self._looking = asyncio.Lock(), asyncio.Lock()
        self._is_back = asyncio.Event()

    async def passed(self) -> bool:
        """Waits until something may be asked; whether this is the one that looks, and `over` lets the next one."""
        if not self._is_on():
            return False
        await self._probing.acquire()
        if self._is_on():
            self._is_back.clear()
            await happens(self._is_back, max(self._resume_s, self._told_s) - monotonic())
            return True
        self._probing.release()
        return False

    def over(self, *, held: bool) -> None:
        """A request has ended."""
        if held:
            self._probing.release()

    def _is_on(self) -> bool:
        return self._pause_s > 0 or monotonic() < self._told_s

    def answered(self) -> None:
        """A request was answered."""
        self.has_answered, self._answered_s, self._pause_s = True, monotonic(), 0.0
        if self._answered_s >= self._told_s:
            self._is_back.set()

    async def failed(self, objects: Objects, name: str, trouble: Trouble, begun_s: float, times: int) -> Trouble:
        """A request was not answered: waits where it alone was, else has all wait; gives what was the matter.

        Args:
            objects: The store.
            name: What was asked for.
            trouble: What the client of stores says.
            begun_s: Since when it was asked for.
            times: How often that was so for this request.
        """
        jitter = random.uniform(0.7, 1.0)  # noqa: S311 - so that hosts do not ask in step
        is_overrun = trouble.status in _OVERRUN
        self.overruns += is_overrun
        async with self._looking:  # of several that fail together the first one says how long
            if monotonic() < self._resume_s:
                return trouble
            said = Said(0, 0.0)
            if trouble.status is None or is_overrun:
                self._counts.requests += 1
                said = await asyncio.to_thread(self._asked, objects, name)
            if said.status // 100 == 3:
                return Trouble(Kind.ELSEWHERE, said.status)
            self._told_s = monotonic() + said.retry_after_s
            is_lone = self._answered_s >= begun_s and not said.retry_after_s
            if not is_lone:
                self._pause_s = min(_LAST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s))
                self._resume_s = max(monotonic() + self._pause_s * (1 + jitter) / 2, self._told_s)
        if is_lone:
            await asyncio.sleep(jitter * min(_LAST_LONE_PAUSE_S, _LONE_PAUSE_S * 2 ** min(times, 8)))
        return trouble

    def _asked(self, objects: Objects, name: str) -> Said:
        """Asks once more, by an address that is signed: what the client of stores does not tell of its answer."""
        url = objects.signed(name)
        if url is None:
            return Said(0, 0.0)
        handlers: list[Any] = [_NoRedirects()]
        if url.startswith("https:"):
            trusted = ssl.create_default_context(cafile=self._client.certificates)
            handlers.append(urllib.request.HTTPSHandler(context=trusted))
        request = urllib.request.Request(url, headers={"Range": "bytes=0-0"})  # noqa: S310 - of a store's own address
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=_ASK_S) as answer:
                return Said(answer.status, 0.0)
        except urllib.error.HTTPError as error:
            text = error.headers.get("Retry-After", "")
            error.close()
            is_number = text.isascii() and text.isdigit()
            return Said(error.code, min(_MOST_RETRY_AFTER_S, float(text)) if is_number else 0.0)
        except (OSError, ValueError):
            return Said(0, 0.0)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """What is sent elsewhere is an answer, and not followed: what signs a request belongs to its host."""

    def redirect_request(self, *_: Any) -> None:
        return None
