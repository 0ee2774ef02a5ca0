"""The process of `fault_proxy.FaultProxy`: forwards HTTP between clients and a store, and does what is asked of it.

Needs nothing but the interpreter, so that it is there in no time. Its end is that of whoever started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_PIECE = 1 << 18
_MOST_SEEN = 200_000


@dataclass
class Fault:
    """One thing that is done, to requests that fit."""

    kind: str
    method: str = ""
    path: str = ""
    """Part of it."""
    skip: int = 0
    times: int = 1 << 60
    p: float = 1.0
    after: int = 1000
    at: int = -1
    less: int = 1000
    s: float = 1.0
    status: int = 503
    code: str = "SlowDown"
    headers: dict[str, str] = field(default_factory=dict)

    def hits(self, request: Request, chance: random.Random) -> bool:
        """Whether it is done to this one."""
        if not self.times or self.method not in ("", request.method) or self.path not in request.path:
            return False
        if self.p < 1 and chance.random() >= self.p:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass
class Request:
    """What a client has sent, but for its body."""

    method: str
    path: str
    lines: list[bytes]

    def header(self, name: str) -> str:
        """Of that name; "" without one."""
        return _header(self.lines, name)


class Proxy:
    """The proxy, in its own process."""

    def __init__(self, target: int, seed: int) -> None:
        self._target = target
        self._chance = random.Random(seed)
        self._faults: list[Fault] = []
        self._ttfb, self._rate = 0.0, 0.0
        self._counts: Counter[str] = Counter()
        self._seen: list[tuple[Any, ...]] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = 0
        self._server: asyncio.Server | None = None
        self._later: set[asyncio.Task[None]] = set()

    async def listen(self) -> int:
        """From now on it serves; on which port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=1 << 20, backlog=1024)
        self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    async def asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request to the proxy itself: JSON there, JSON back."""
        request = await _head(reader)
        body = await reader.readexactly(int(request.header("content-length") or 0)) if request else b""
        answer = json.dumps(self._done(json.loads(body or b"{}"))).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
        await writer.drain()
        writer.close()

    def _done(self, asked: dict[str, Any]) -> Any:
        match asked.pop("do", None):
            case "fault":
                self._faults.append(Fault(**asked))
            case "shape":
                self._ttfb, self._rate = asked["ttfb"], asked["rate"]
            case "calm":
                self._faults.clear()
                self._counts.clear()
                self._seen.clear()
            case "gone":
                task = asyncio.ensure_future(self._gone(asked["s"]))
                self._later.add(task)
                task.add_done_callback(self._later.discard)
            case "seen":
                return self._seen
        return dict(self._counts)

    async def _gone(self, seconds: float) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            _reset(writer)
        await asyncio.sleep(seconds)
        await self.listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._counts["connections"] += 1
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            from_store, upstream = await asyncio.open_connection("127.0.0.1", self._target, limit=1 << 20)
            while request := await _head(reader):
                if not await self._answer(request, (reader, writer), (from_store, upstream)):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # either side has gone
        finally:
            self._writers.discard(writer)
            for one in filter(None, (writer, upstream)):
                one.close()

    async def _answer(self, request: Request, client: Any, store: Any) -> bool:
        """One request; whether the connection goes on."""
        reader, writer = client
        from_store, to_store = store
        self._counts["requests"] += 1
        self._counts[request.method] += 1
        fault = next((fault for fault in self._faults if fault.hits(request, self._chance)), None)
        if fault is not None:
            self._counts["faults"] += 1
            self._counts[fault.kind] += 1
        began = time.monotonic()
        seen = [request.method, request.path.partition("?")[0], request.header("range"), 0, 0]
        if len(self._seen) < _MOST_SEEN:
            self._seen.append(seen)  # type: ignore[arg-type] - it is added to until the answer is over
        if fault is not None and fault.kind in ("status", "hang"):
            await _pass_on(reader, None, request.lines)
            return await self._instead(fault, client, seen)
        if fault is not None and fault.kind == "no_partial" and "range" not in _signed(request):
            request.lines = [line for line in request.lines if not line.lower().startswith(b"range:")]
        to_store.write(b"\r\n".join(request.lines) + b"\r\n\r\n")
        await _pass_on(reader, to_store, request.lines)
        while True:
            answer = await _head(from_store)
            if answer is None:
                return False
            if not answer.lines[0].split()[1].startswith(b"1"):
                break
            writer.write(b"\r\n".join(answer.lines) + b"\r\n\r\n")  # 100: go on
        late = self._ttfb + (fault.s if fault is not None and fault.kind == "slow_start" else 0)
        await asyncio.sleep(max(0.0, late - (time.monotonic() - began)))
        seen[3] = int(answer.lines[0].split()[1])
        return await _Body(self, request, answer, fault, seen).send(from_store, client)

    async def _instead(self, fault: Fault, client: Any, seen: list[Any]) -> bool:
        reader, writer = client
        if fault.kind == "hang":
            await reader.read(1)  # until it leaves
            return False
        seen[3] = fault.status
        body = b'<?xml version="1.0"?><Error><Code>%s</Code><Message>asked of the proxy</Message></Error>'
        body %= fault.code.encode()
        lines = [f"{name}: {value}".encode() for name, value in fault.headers.items()]
        head = [b"HTTP/1.1 %d Asked" % fault.status, *lines, b"Content-Length: %d" % len(body)]
        writer.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
        await writer.drain()
        return True

    async def sent(self, writer: asyncio.StreamWriter, piece: bytes, seen: list[Any]) -> None:
        """Sends part of a body, at the speed that was asked for."""
        self._counts["nbytes"] += len(piece)
        seen[4] += len(piece)
        began = time.monotonic()
        writer.write(piece)
        await writer.drain()
        if self._rate:
            await asyncio.sleep(max(0.0, len(piece) / self._rate - (time.monotonic() - began)))

    @property
    def piece(self) -> int:
        """How much is sent at once."""
        return _PIECE if not self._rate else max(1000, min(_PIECE, int(self._rate / 50)))

    def some(self, count: int) -> int:
        """A number below ``count``."""
        return self._chance.randrange(max(1, count))


class _Body:
    """The body of an answer on its way, with what is done to it."""

    def __init__(self, proxy: Proxy, request: Request, answer: Request, fault: Fault | None, seen: list[Any]) -> None:
        self._proxy, self._request, self._fault, self._seen = proxy, request, fault, seen
        self._lines = answer.lines
        self._is_chunked = "chunked" in answer.header("transfer-encoding")
        status = int(answer.lines[0].split()[1])
        has_none = request.method == "HEAD" or status in (204, 304)
        self._nbytes = 0 if has_none else int(answer.header("content-length") or 0)

    async def send(self, reader: asyncio.StreamReader, client: Any) -> bool:
        """Passes it on; whether the connection goes on."""
        _, writer = client
        fault, kind = self._fault, "" if self._fault is None else self._fault.kind
        extra = self._changed_head(kind)
        writer.write(b"\r\n".join(self._lines) + b"\r\n\r\n")
        if self._is_chunked:
            await _chunks(reader, writer)
            return True
        ends_at = self._nbytes if fault is None or kind not in ("cut", "rst", "stall", "trickle") else fault.after
        ends_at -= fault.less if fault is not None and kind == "short_length" else 0
        flipped = -1 if fault is None or kind != "flip" else (fault.at if fault.at >= 0 else self._proxy.some(ends_at))
        done = 0
        while done < min(ends_at, self._nbytes):
            piece = await reader.read(min(self._proxy.piece, min(ends_at, self._nbytes) - done))
            if not piece:
                return False
            if done <= flipped < done + len(piece):
                changed = bytearray(piece)
                changed[flipped - done] ^= 1
                piece = bytes(changed)
            await self._proxy.sent(writer, piece, self._seen)
            done += len(piece)
        if done < self._nbytes:
            return await self._unfinished(kind, reader, client)
        writer.write(extra)
        await writer.drain()
        return kind not in ("long_length", "rubbish")

    async def _unfinished(self, kind: str, reader: asyncio.StreamReader, client: Any) -> bool:
        from_client, writer = client
        await writer.drain()
        if kind == "short_length":  # whole, as far as its head says: the connection goes on
            await reader.readexactly(self._nbytes - max(0, self._nbytes - (self._fault.less if self._fault else 0)))
            return True
        if kind == "rst":
            _reset(writer)
        elif kind == "stall":
            await from_client.read(1)
        elif kind == "trickle":
            while not from_client.at_eof() and (piece := await reader.read(1)):
                await self._proxy.sent(writer, piece, self._seen)
                await asyncio.sleep(1)
        return False

    def _changed_head(self, kind: str) -> bytes:
        """Does what is asked to the head; what comes behind the body."""
        fault, nbytes = self._fault, self._nbytes
        if kind == "short_length" and fault is not None:
            self._set("Content-Length", str(max(0, nbytes - fault.less)))
        elif kind == "long_length":
            self._set("Content-Length", str(nbytes + 1000))
            return b"\xff" * 1000
        elif kind == "rubbish":
            self._set("Content-Length", None)
            self._set("Transfer-Encoding", "chunked")
            return b"zz\r\nno chunk\r\n"
        elif kind == "etag":
            self._set("ETag", '"00000000000000000000000000000000"')
        elif kind == "wrong_range" and (found := _header(self._lines, "content-range")):
            begin, _, rest = found.removeprefix("bytes ").partition("-")
            end, _, total = rest.partition("/")
            self._set("Content-Range", f"bytes {int(begin) + 1}-{int(end) + 1}/{total}")
        elif kind == "no_partial" and self._lines[0].split()[1] == b"206":
            self._lines[0] = b"HTTP/1.1 200 OK"
            self._set("Content-Range", None)
        return b""

    def _set(self, name: str, value: str | None) -> None:
        begin = name.lower().encode() + b":"
        self._lines = [line for line in self._lines if not line.lower().startswith(begin)]
        if value is not None:
            self._lines.append(f"{name}: {value}".encode())


async def _head(reader: asyncio.StreamReader) -> Request | None:
    """A request's or an answer's; None where the connection ends."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head[:-4].split(b"\r\n")
    words = lines[0].decode("latin-1").split()
    return Request(words[0], words[1], lines)


def _header(lines: list[bytes], name: str) -> str:
    begin = name.lower().encode() + b":"
    found = next((line for line in lines[1:] if line.lower().startswith(begin)), b":")
    return found.partition(b":")[2].decode("latin-1").strip()


def _signed(request: Request) -> str:
    return request.header("authorization").partition("SignedHeaders=")[2].partition(",")[0]


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, lines: list[bytes]) -> None:
    """A request's body."""
    left = int(_header(lines, "content-length") or 0)
    while left and (piece := await reader.read(min(left, _PIECE))):
        left -= len(piece)
        if writer is not None:
            writer.write(piece)
            await writer.drain()


async def _chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A body whose length nobody has said: lists, errors."""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        writer.write(line + await reader.readexactly(size + 2))
        await writer.drain()
        if not size:
            return


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, AttributeError):
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _main(target: int, seed: int) -> None:
    proxy = Proxy(target, seed)
    port = await proxy.listen()
    control = await asyncio.start_server(proxy.asked, "127.0.0.1", 0)
    sys.stdout.write(f"{port} {control.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)  # its end is that of who started the proxy
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))
