"""Servers and clients that do not mean well, or are of another version: they speak the protocol as far as they like."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from swift_loader.net import schema
from swift_loader.net.frames import BEAT, HELLO, ORDERS, PARCEL, REFUSED, WELCOME, Limits, write_head
from swift_loader.net.link import Link, LinkLost
from swift_loader.net.receiver import Frame, Receiver
from swift_loader.plan.plan import EpochPlan
from swift_loader.serving.facts import facts_of, loader_id
from swift_loader.worker.porter import ORDER
from tests.watching import until

PLAN = EpochPlan(
    sample_count=96, batch_size=8, consumer_count=1, shuffle=True, seed=7, window=0, mix=1, even="pad",
    drop_last=False, elastic=False, runs=None,
)  # fmt: skip
WIDE = Limits(1 << 20, 1 << 30)


def welcome(**changes: Any) -> bytes:
    """The first word of a server of that plan."""
    facts = facts_of(PLAN, "batch")
    said = {
        "version": 1, "package": "test", "width": 2, "loader": loader_id(facts), "facts": schema.write(facts),
        **changes,
    }  # fmt: skip
    return schema.write(schema.Welcome(**said))


def framed(kind: int, meta: bytes = b"", seq: int = 0, bulk: bytes = b"") -> bytes:
    return write_head(kind, len(meta), seq, len(bulk)) + meta + bulk


def a_parcel(epoch: int, step: int, **changes: Any) -> tuple[bytes, bytes]:
    """A batch of eight numbers: what is said of it, and its bytes."""
    spec = {
        "kind": "columns", "structure": schema.Leaf("sample"), "columns": [schema.Column("array", "float32", [2], "")],
        "capacity": 8, "offsets": [0], "nbytes": 64, **changes.pop("spec", {}),
    }  # fmt: skip
    said = {
        "epoch": epoch, "step": step, "rows": 8, "objects_nbytes": 0, "cost": [0] * 9, "held_ns": 0, "skipped": [],
        "spec": schema.Spec(**spec), **changes,
    }  # fmt: skip
    return schema.write(schema.Parcel(**said)), bytes(64)


def honestly(seq: int, epoch: int, step: int) -> bytes:
    """What a server answers an order with."""
    meta, bulk = a_parcel(epoch, step)
    return framed(PARCEL, meta, seq, bulk)


class Beside(NamedTuple):
    """Bytes, and a descriptor that goes with them."""

    data: bytes
    fd: int


#: What a fake server sends for (seq, epoch, step); nothing for None, which ends the connection.
Answering = Callable[[int, int, int], bytes | Beside | None]


class FakeServer:
    """Lets everybody in, and answers orders as it is told. ``path``: of a socket, in the place of TCP."""

    def __init__(self, answer: Answering, first: bytes | None = None, path: Path | None = None) -> None:
        if path is None:
            self._door = socket.create_server(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{self._door.getsockname()[1]}"
        else:
            self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._door.bind(str(path))
            self._door.listen()
            self.address = f"unix:{path}"
        self._answer = answer
        self._first = framed(WELCOME, welcome()) if first is None else first
        self._ends: list[socket.socket] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over = True
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        until(lambda: not any(thread.name == "fake" for thread in threading.enumerate()))

    def _run(self) -> None:
        while not self._is_over:
            try:
                end, _ = self._door.accept()
            except OSError:
                return
            self._ends.append(end)
            threading.Thread(target=self._serve, args=(end,), daemon=True, name="fake").start()

    def _serve(self, end: socket.socket) -> None:
        link = Link(end, "client")
        receiver = Receiver(link, WIDE)
        try:
            receiver.wait(10)
            link.send([self._first])
            while not self._is_over:
                frame = receiver.wait(10)
                orders = ORDER.iter_unpack(frame.meta) if frame.kind == ORDERS else ()
                for order in orders:
                    self._send(link, self._answer(*order))
                link.say(BEAT)
        except LinkLost:
            pass
        finally:
            link.close()

    @staticmethod
    def _send(link: Link, answer: bytes | Beside | None) -> None:
        if answer is None:
            raise LinkLost("it ends")
        if isinstance(answer, Beside):
            link.send_with_file(*answer)
        else:
            link.send([answer])


@contextlib.contextmanager
def faked(answer: Answering, first: bytes | None = None, path: Path | None = None) -> Iterator[FakeServer]:
    server = FakeServer(answer, first, path)
    try:
        yield server
    finally:
        server.close()


class Stranger:
    """A client that says what it likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.link = Link(self.socket, "server")
        self.receiver = Receiver(self.link, WIDE)

    def greet(self, **changes: Any) -> Frame:
        """Says hello as a loader; the first word of the server."""
        said = {"lowest": 1, "highest": 1, "package": "test", "asks_for": "loader", **changes}
        self.link.send([framed(HELLO, schema.write(schema.Hello(**said)))])
        return self.receiver.wait(10)

    def say_hello(self) -> None:
        """And waits for nothing, nor cares whether it was heard."""
        with contextlib.suppress(LinkLost):
            self.link.send([framed(HELLO, schema.hello("loader"))])

    def order(self, *orders: tuple[int, int, int]) -> None:
        meta = b"".join(ORDER.pack(*order) for order in orders)
        self.link.send([framed(ORDERS, meta)])

    def is_cut_off(self, within_s: float = 30.0) -> bool:
        """Whether the server closes, whatever it says before."""
        try:
            while self.receiver.wait(within_s).kind in (WELCOME, BEAT, PARCEL, REFUSED):
                pass
        except LinkLost:
            return True
        return False

    def close(self) -> None:
        self.link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
