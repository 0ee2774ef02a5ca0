"""A store that the host's fetcher asks: what datasets read by, in trainers, workers, and whatever forks."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.rendezvous import meeting_name
from swift_loader.stores.link import Link
from swift_loader.stores.messages import Message
from swift_loader.stores.protocol import Found

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

    from swift_loader.shards.url import Place
    from swift_loader.stores.client import Client

T = TypeVar("T")
#: Fetchers that die one after the other are replaced so long.
_GIVE_UP_S = 120.0


class Fetched:
    """A folder of a bucket, read by the fetcher. It pickles; each thread of each process has a connection of its own.

    Args:
        place: Where it is.
        client: Who is let in.
        options: What the fetcher is to do: ``cache``, ``cache_limit``, ``memory``.
    """

    at_once = 1

    def __init__(self, place: Place, client: Client, options: dict[str, Any] | None = None) -> None:
        self.place, self.client = place, client
        self.options = options or {}
        self.name = meeting_name("swift-fetcher", repr((*place, client.name, sorted(self.options.items()))))
        self._here = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_here"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._here = threading.local()

    @property
    def where(self) -> str:
        """See `Store`."""
        return f"{self.place.scheme}://{self.place.host}/{self.place.path}".rstrip("/")

    def __repr__(self) -> str:
        return f"Fetched({self.where!r})"

    def by_link(self, do: Callable[[Link], T]) -> T:
        """What ``do`` gives, with a connection; with another one, from its beginning, where the fetcher dies meanwhile.

        Raises:
            ShardError: if there is no fetcher to be had.
        """
        until = monotonic() + _GIVE_UP_S
        while True:
            try:
                return do(self._link())
            except (ConnectionError, BrokenPipeError) as error:
                self._here.link = None
                if monotonic() > until:
                    text = f"the process that fetches has died again and again for {_GIVE_UP_S:.0f} s: {error}"
                    raise ShardError(text).within(set=self.where) from error

    def ask(self, **words: Any) -> Message:
        """The fetcher's answer."""
        return self.by_link(lambda link: link.ask(words))

    def _link(self) -> Link:
        link: Link | None = getattr(self._here, "link", None)
        if link is None or link.is_closed:
            hello = {"hello": 1, "place": self.place, "client": self.client.options(), "options": self.options}
            link = self._here.link = Link(self.name, hello, [self.client.credentials.fd])
        return link

    def statistics(self) -> dict[str, Any]:
        """What the fetcher has counted since it began: requests, bytes, retries, hedges, hits; one call."""
        return self.ask(statistics=1).words["statistics"]  # type: ignore[no-any-return]

    def nbytes(self, name: str) -> int:
        """See `Store`."""
        return int(self.ask(size=name).words["size"])

    def read(self, name: str, offset: int, nbytes: int) -> Buffer:
        """See `Store`."""
        return self.read_many([(name, offset, nbytes)])[0]

    def read_many(self, wanted: Sequence[tuple[str, int, int]]) -> list[memoryview]:
        """Several parts of several objects, fetched at the same time."""
        some = [one for one in wanted if one[2]]
        data = self.ask(read=some).data() if some else memoryview(b"")
        parts, at = [], 0
        for _, _, nbytes in wanted:
            parts.append(data[at : at + nbytes])
            at += nbytes
        return parts

    def whole(self, name: str) -> Buffer:
        """See `Store`."""
        return self.ask(whole=name).data()

    def listed(self, prefix: str = "") -> Iterator[Found]:
        """See `Store`."""
        for name, nbytes in json.loads(bytes(self.ask(listed=1).data())):
            if name.startswith(prefix):
                yield Found(name, nbytes)

    def draft(self, name: str) -> Any:
        """See `Store`: nothing is written by the fetcher."""
        raise ConfigError(f"{self.where}/{name} cannot be written by a dataset that reads: use store_at()")

    def replace(self, name: str, data: Buffer) -> None:  # noqa: ARG002 - as the protocol has it
        """See `Store`: nothing is written by the fetcher."""
        self.draft(name)

    def delete(self, name: str) -> None:
        """See `Store`: nothing is written by the fetcher."""
        self.draft(name)


def checked_options(
    cache: Any, cache_limit: int | None, memory: int | None, egress_usd_per_gb: Any = None
) -> dict[str, Any]:
    """What a user said of the fetcher, as it is told.

    Raises:
        ConfigError: if it cannot be so.
    """
    said: tuple[tuple[str, Any], ...] = (("cache_limit", cache_limit), ("memory", memory))
    for name, value in said:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"{name} is a number of bytes, at least 1, not {value!r}")
    usd = egress_usd_per_gb
    if usd is not None and not (isinstance(usd, int | float) and 0 <= usd < 1000):
        raise ConfigError(f"egress_usd_per_gb is what a GB costs in dollars, 0 or more, not {usd!r}")
    if cache_limit is not None and cache is None:
        raise ConfigError("cache_limit is for cache=FOLDER: without one nothing is kept on a disk")
    options = {
        "cache": None if cache is None else os.path.abspath(os.fspath(cache)),  # noqa: PTH100 - it may not be there yet
        "cache_limit": cache_limit,
        "memory": memory,
        "egress_usd_per_gb": egress_usd_per_gb or None,
    }
    return {name: value for name, value in options.items() if value is not None}
