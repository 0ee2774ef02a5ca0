"""Those who ask, and what they are answered."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.fetcher.ahead import Ahead
from swift_loader.fetcher.beside import TablesHere
from swift_loader.fetcher.counts import Counts
from swift_loader.fetcher.followers import Follower
from swift_loader.fetcher.holdings import Holdings
from swift_loader.fetcher.kept import Kept
from swift_loader.fetcher.network import Network
from swift_loader.fetcher.room import Room
from swift_loader.fetcher.sets import ShardSet
from swift_loader.fetcher.waiting import happens
from swift_loader.fetcher.wishes import Wanted, Wishes
from swift_loader.host.memory import free_nbytes
from swift_loader.host.rendezvous import is_same_user
from swift_loader.plan.epoch_lanes import Need
from swift_loader.shards.upcoming import FREE, METERED
from swift_loader.shards.url import Place
from swift_loader.stores.client import Client
from swift_loader.stores.link import told_of
from swift_loader.stores.messages import Message, in_memory, receive, send

_MOST_GENERATION = 64 << 20
_SEND_S, _PAUSE_S = 10.0, 0.01
_LEAST_ROOM, _MOST_ROOM, _ROOM_SHARE = 64 << 20, 8 << 30, 4


class Connection:
    """One who asks."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.answered_s = 0.0
        self.by: Any = None
        """For which follower it asks, as far as it has said so."""
        self.inbox: asyncio.Queue[Message | None] = asyncio.Queue()


class Service:
    """Answers all connections; each one's messages one after the other.

    Args:
        listening: Where they come.
        linger_s: It ends when nobody has been there for so long.
    """

    def __init__(self, listening: socket.socket, linger_s: float) -> None:
        self._listening, self._linger_s = listening, linger_s
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._counts = Counts()
        self._sets: dict[int, ShardSet] = {}
        self._generations: dict[str, Any] = {}
        self._network: Network | None = None
        self._alone_s = monotonic()
        self._left = asyncio.Event()

    async def run(self) -> None:
        """Until nobody is there."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listening, self._accept)
        while self._connections or monotonic() - self._alone_s < self._linger_s:
            await happens(self._left, self._linger_s / 4)
        loop.remove_reader(self._listening)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            link, _ = self._listening.accept()
            link.setblocking(False)  # noqa: FBT003 - as it is called
            if not is_same_user(link):
                link.close()
                return
            connection = Connection(link)
            asyncio.get_running_loop().add_reader(link, self._read, connection)
            self._connections[connection] = asyncio.ensure_future(self._serve(connection))

    def _read(self, connection: Connection) -> None:
        try:
            while True:
                connection.inbox.put_nowait(receive(connection.link))
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            asyncio.get_running_loop().remove_reader(connection.link)
            connection.inbox.put_nowait(None)
            self._connections[connection].cancel()

    async def _serve(self, connection: Connection) -> None:
        try:
            while (message := await connection.inbox.get()) is not None:
                fds: list[int] = []
                try:
                    words = await self._answered(connection, message, fds)
                except Exception as error:  # noqa: BLE001 - whoever asked is told
                    words = {"error": told_of(error)}
                finally:
                    message.close()
                await self._say(connection, words, fds)
        except (OSError, TimeoutError):
            pass
        finally:
            asyncio.get_running_loop().remove_reader(connection.link)
            connection.link.close()
            del self._connections[connection]
            self._alone_s = monotonic()
            self._left.set()
            if self._network is not None:
                self._holdings.release(connection)
                self._ahead.left(connection)

    async def _say(self, connection: Connection, words: dict[str, Any], fds: list[int]) -> None:
        until = monotonic() + _SEND_S
        try:
            while not _is_said(connection.link, words, fds):
                if monotonic() > until:
                    raise TimeoutError("who has asked reads nothing")
                await asyncio.sleep(_PAUSE_S)
        finally:
            for fd in fds:
                os.close(fd)

    async def _answered(self, connection: Connection, message: Message, fds: list[int]) -> dict[str, Any]:
        words = message.words
        if "hello" in words:
            return self._welcome(words, message, fds)
        if self._network is None:
            raise ConfigError("nobody has told where the store is")
        if "done" in words:
            self._holdings.release(connection)
            return {}
        for name, answer in (
            ("turn", self._turn), ("want", self._want), ("need", self._need), ("set", self._set),
        ):  # fmt: skip
            if name in words:
                return await answer(connection, words, message)
        return await self._of_the_store(words, fds)

    def _welcome(self, words: dict[str, Any], message: Message, fds: list[int]) -> dict[str, Any]:
        client = Client.from_options(words["client"], message.fds.pop(0))
        if self._network is None:
            os.environ.update(client.credentials.environment())
            options = words["options"]
            network = Network(Place(*words["place"]), client, self._counts)
            kept = None
            if "cache" in options:
                kept = Kept(options["cache"], options.get("cache_limit"), self._counts)
            nbytes = options.get("memory") or max(_LEAST_ROOM, min(_MOST_ROOM, free_nbytes() // _ROOM_SHARE))
            self._holdings = Holdings(Room(nbytes), self._counts, kept)
            self._ahead = Ahead(self._holdings, self._counts)
            self._usd_per_gb = float(options.get("egress_usd_per_gb", 0.0))
            terms = METERED if self._usd_per_gb else FREE
            self._wishes = Wishes(self._holdings, self._ahead, self._counts, terms)
            self._running = asyncio.ensure_future(self._ahead.run())
            self._network = network
        fds += map(os.dup, (self._holdings.room.arena_fd, self._holdings.room.page_fd))
        return {"pid": os.getpid()}

    async def _set(self, connection: Connection, words: dict[str, Any], message: Message) -> dict[str, Any]:  # noqa: ARG002 - as all
        number = int(words["set"])
        assert self._network is not None
        if number not in self._sets:
            tables: Network | TablesHere = self._network
            if "tables_client" in words:
                client = Client.from_options(words["tables_client"], message.fds.pop(1))
                tables = Network(Place(*words["tables"]), client, self._counts)
            elif "tables" in words:
                tables = TablesHere(Place(*words["tables"]).path)
            self._sets[number] = ShardSet(number, message.data(), self._network, tables)
        return {}

    async def _turn(self, connection: Connection, words: dict[str, Any], message: Message) -> dict[str, Any]:  # noqa: ARG002 - as all
        self._holdings.release(connection)
        number, name, epoch, step = words["turn"]
        follower = self._follower(number, name)
        connection.by = name
        follower.is_at(connection, (epoch, step))
        self._holdings.passed(follower, follower.low)
        self._ahead.look()
        return follower.missing()

    async def _need(self, connection: Connection, words: dict[str, Any], message: Message) -> dict[str, Any]:  # noqa: ARG002 - as all
        number, name, epoch, until = words["need"]
        follower = self._follower(number, name)
        columns = np.frombuffer(message.data(), np.int64).reshape(4, -1)
        follower.told(epoch, Need(*columns), until)
        self._ahead.look()
        self._ahead.weigh()
        return {}

    def _follower(self, number: int, name: Any) -> Follower:
        found = self._ahead.followers.get(name)
        if found is None:
            found = Follower(self._sets[number], name, tally=self._counts.of(name))
            self._ahead.joined(found)
        return found

    async def _want(self, connection: Connection, words: dict[str, Any], message: Message) -> dict[str, Any]:  # noqa: ARG002 - as all
        """Has all these ranges come; when it is answered they are there, and stay until this connection goes on."""
        of = self._sets[int(words["set"])]
        wanted = [Wanted(*one) for one in words["want"]]
        connection.by = words.get("by")
        if words.get("fresh"):
            self._wishes.drop(of, wanted)
        try:
            connection.answered_s = 0.0
            await self._wishes.have(connection, of, wanted)
        finally:
            connection.answered_s = monotonic()
            for follower in self._ahead.followers.values():
                follower.has_begun = follower.has_begun or connection in follower.steps
            self._ahead.look()
        return {}

    async def _whole(self, network: Network, name: str) -> Any:
        """An object; a generation of a catalog never changes, and each worker asks for it."""
        data = self._generations.get(name)
        if data is None:
            data = (await network.get(name, 0, None)).data
            if name.startswith("index-") and memoryview(data).nbytes <= _MOST_GENERATION:
                self._generations = {name: data}
        return data

    async def _of_the_store(self, words: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        network = self._network
        assert network is not None
        if "statistics" in words:
            room = self._holdings.room
            told = {
                **self._counts.told(),
                "egress_usd": self._counts.nbytes * self._usd_per_gb / 1e9,
                "room_nbytes": room.nbytes,
                "used_nbytes": room.used_nbytes,
                "pid": os.getpid(),
                "connections": len(self._connections),
            }
            return {"statistics": told}
        if "whole" in words:
            fds.append(in_memory(await self._whole(network, words["whole"])))
        elif "size" in words:
            return {"size": (await network.get(words["size"], 0, 1)).nbytes}
        elif "listed" in words:
            fds.append(in_memory(json.dumps(await network.listed()).encode()))
        elif "read" in words:
            parts = await asyncio.gather(*(network.get(name, at, at + nbytes) for name, at, nbytes in words["read"]))
            fds.append(in_memory(b"".join(part.data for part in parts)))
        else:
            raise ShardError(f"the fetcher was asked something that it does not know: {sorted(words)}")
        return {}


def _is_said(link: socket.socket, words: dict[str, Any], fds: list[int]) -> bool:
    try:
        send(link, words, fds)
    except BlockingIOError:
        return False
    return True
