"""Served loaders and those who come to harm them: servers and clients that lie, strangers by the thousand.

Each row's outcome is an error that names the server, or nothing at all for those who behave; nothing that came is run,
nothing that is claimed is allocated.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from swift_loader import ConfigError, DataError, ProtocolMismatch, SwiftLoader, SwiftLoaderError
from swift_loader.net import schema
from swift_loader.net.frames import FAILED, HEAD, HELLO, MAGIC, REFUSED, WELCOME
from swift_loader.net.keygen import make_key
from swift_loader.net.keys import client_side, read_key
from tests.fault.hostile import Stranger, faked, framed, honestly, welcome
from tests.served_loaders import made, plain, serving
from tests.served_streams import free_port

slow = pytest.mark.slow


@contextlib.contextmanager
def a_server(key: Any = None, name: str = "Rows") -> Iterator[tuple[int, psutil.Process]]:
    """A server that answers, its port and process."""
    port = free_port()
    with serving(name, f"tcp://127.0.0.1:{port}", key) as server:
        SwiftLoader.connect(f"tcp://127.0.0.1:{port}", key=key).close()
        yield port, psutil.Process(server.pid)


def still_serves(port: int, key: Any = None) -> bool:
    """Whether an honest client has its whole stream."""
    with SwiftLoader.connect(f"tcp://127.0.0.1:{port}", key=key) as loader, made() as here:
        loader.start(0)
        here.start(0)
        return [plain(batch) for batch in loader] == [plain(batch) for batch in here]


class Touches:
    """Were it unpickled, a file would be there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@slow
def test_f12_pickles_in_every_field_are_never_run(tmp_path: Path):
    target = tmp_path / "touched"
    bomb = pickle.dumps(Touches(target))
    text = bomb.decode("latin-1")
    for first in (
        framed(WELCOME, bomb), framed(WELCOME, welcome(facts=bomb)), framed(WELCOME, welcome(package=text[:100])),
        framed(REFUSED, bomb),
    ):  # fmt: skip
        with faked(honestly, first) as server, contextlib.suppress(SwiftLoaderError):
            SwiftLoader.connect(server.address).close()

    def failing(seq: int, epoch: int, step: int) -> bytes:
        return framed(FAILED, schema.write(schema.Failure(epoch, step, text[:90], text, text, text)), seq)

    with faked(failing) as server, SwiftLoader.connect(server.address) as loader, pytest.raises(DataError):
        loader.start(0)
    with a_server() as (port, _):
        for hello in (bomb, schema.write(schema.Hello(1, 1, text[:90], "loader", text[:90], bomb[:16]))):
            with Stranger(port) as stranger:
                stranger.link.send([framed(HELLO, hello)])
        assert still_serves(port)
    assert not target.exists()


@slow
@pytest.mark.parametrize(("lowest", "highest", "works"), [(0, 0, False), (0, 1, True), (1, 2, True), (2, 3, False)])
def test_f16_versions_that_have_one_in_common_work_and_others_are_told_both(lowest: int, highest: int, *, works: bool):
    with a_server() as (port, _), Stranger(port) as stranger:
        frame = stranger.greet(lowest=lowest, highest=highest)
        assert frame.kind == (WELCOME if works else REFUSED)
        if not works:
            text = schema.read(schema.Refused, frame.meta).text
            assert f"this client {lowest} to {highest}" in text
            assert "versions 1 to 1" in text


@slow
def test_f16_a_server_that_refuses_a_version_is_not_asked_again():
    refused = framed(REFUSED, schema.write(schema.Refused("version", "this server speaks 2 to 3, this client 1 to 1")))
    with faked(honestly, refused) as server, pytest.raises(ProtocolMismatch, match="2 to 3, this client 1 to 1"):
        SwiftLoader.connect(server.address)


@slow
def test_f17_a_port_that_is_taken_and_an_open_door_without_a_key_are_refused():
    with socket.create_server(("127.0.0.1", 0)) as door:
        with pytest.raises(ConfigError, match="another server has it"):
            made().serve(f"tcp://127.0.0.1:{door.getsockname()[1]}")
        for address in ("tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://10.1.2.3:5557"):
            with pytest.raises(ConfigError, match="needs a key"):
                made().serve(address)


@slow
@pytest.mark.parametrize(
    "orders",
    [[(1, 0, 12)], [(1, 0, 1 << 63)], [(1, (1 << 64) - 1, 0)], [(seq, 0, seq % 12) for seq in range(4097)], "torn"],
)
def test_f9_a_client_that_asks_for_what_there_is_not_is_cut_off(orders: Any):
    with a_server() as (port, process):
        before = process.memory_info().rss
        with Stranger(port) as stranger:
            assert stranger.greet().kind == WELCOME
            if orders == "torn":
                stranger.link.send([framed(32, b"x" * 25)])
            else:
                stranger.order(*orders[:2000])
                stranger.order(*orders[2000:])
            assert stranger.is_cut_off()
        with Stranger(port) as stranger:
            assert stranger.greet(consumer=1).kind == REFUSED
        assert still_serves(port)
        assert process.memory_info().rss - before < 64 << 20


def garbage(seed: int) -> bytes:
    chance = random.Random(seed)
    hello = framed(HELLO, schema.hello("loader"))
    torn = bytearray(hello + framed(32, chance.randbytes(48)))
    torn[chance.randrange(len(torn))] ^= 1 << chance.randrange(8)
    return [
        chance.randbytes(chance.randrange(1, 3000)), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01" + chance.randbytes(500), hello + chance.randbytes(500), bytes(torn),
        hello[: chance.randrange(1, len(hello))], HEAD.pack(MAGIC, HELLO, 0, 1 << 31, 0, 1 << 63),
    ][seed % 7]  # fmt: skip


@slow
@pytest.mark.parametrize(
    "count", [1000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(36_000)])]
)
def test_f8_garbage_harms_nobody(count: int):
    with a_server() as (port, process), SwiftLoader.connect(f"tcp://127.0.0.1:{port}") as honest, made() as here:
        honest.start(0)
        here.start(0)
        batches = iter(honest)
        seen = [plain(next(batches))]
        before = process.memory_info().rss
        for seed in range(count):
            with socket.create_connection(("127.0.0.1", port), 10) as stranger, contextlib.suppress(OSError):
                stranger.sendall(garbage(seed))
        assert [*seen, *map(plain, batches)] == [plain(batch) for batch in here]
        assert process.memory_info().rss - before < 16 << 20
        assert still_serves(port)


@slow
@pytest.mark.parametrize("count", [2000, pytest.param(5000, marks=pytest.mark.soak)])
def test_f10_thousands_who_say_a_byte_now_and_then_keep_nobody_out(count: int):
    with a_server() as (port, process), contextlib.ExitStack() as crowd:
        for at in range(count):
            one = crowd.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            with contextlib.suppress(OSError):
                one.send(b"S")
            assert at % 500 != 499 or still_serves(port)
        assert process.num_fds() < 500  # so many of them were sent away


@slow
def test_f11_a_flood_of_connections_ends_neither_server_nor_those_who_are_in(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SWIFT_TESTS_MOST_FILES", "160")  # of the server
    with a_server() as (port, _), SwiftLoader.connect(f"tcp://127.0.0.1:{port}") as honest, made() as here:
        honest.start(0)
        here.start(0)
        batches = iter(honest)
        seen = [plain(next(batches))]
        with contextlib.ExitStack() as crowd:
            for guest in [crowd.enter_context(Stranger(port)) for _ in range(300)]:
                guest.say_hello()  # it behaves, and stays
            assert [*seen, *map(plain, batches)] == [plain(batch) for batch in here]
        assert still_serves(port)


@slow
def test_f7_other_keys_and_none_are_refused_alike_before_anything_is_said(tmp_path: Path):
    right, wrong = tmp_path / "right.key", tmp_path / "wrong.key"
    for path in (right, wrong):
        make_key(path)
    (tmp_path / "empty.key").touch(mode=0o600)
    with a_server(str(right)) as (port, process):
        before = process.memory_info().rss
        answers = {answer_to(port, how, wrong, right) for how in ("wrong", "right name", "none", "old", "clear")}
        assert not any(b"swift" in answer.lower() or len(answer) > 64 for answer in answers)  # at most an alert
        with pytest.raises(ConfigError, match="is no key"):
            SwiftLoader.connect(f"tcp://127.0.0.1:{port}", key=str(tmp_path / "empty.key"))
        assert process.memory_info().rss - before < 8 << 20
        assert still_serves(port, str(right))


def answer_to(port: int, how: str, wrong: Path, right: Path) -> bytes:
    """What the server says to a client of that sort, before it closes."""
    with socket.create_connection(("127.0.0.1", port), 10) as plainly:
        plainly.settimeout(10)
        try:
            if how == "clear":
                plainly.sendall(framed(HELLO, schema.hello("loader")))
                return plainly.recv(4096)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if how == "old":
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            name = read_key(right).ident if how in ("none", "right name", "old") else None
            if how == "right name":
                context.load_cert_chain(wrong)
            secure = (
                client_side(plainly, read_key(wrong))
                if how == "wrong"
                else context.wrap_socket(plainly, server_hostname=name, do_handshake_on_connect=False)
            )
            with secure:
                secure.settimeout(10)
                secure.do_handshake()
                secure.sendall(framed(HELLO, schema.hello("loader")))
                return secure.recv(4096)
        except (OSError, ssl.SSLError):
            return b""


@slow
def test_f7_f15_a_recorded_session_said_again_gets_nothing(tmp_path: Path):
    key = tmp_path / "job.key"
    make_key(key)
    with a_server(str(key)) as (port, _):
        said = all_that_a_client_says(port, key)
        with socket.create_connection(("127.0.0.1", port), 10) as again, contextlib.suppress(ConnectionResetError):
            again.settimeout(20)
            again.sendall(said)
            until_s = time.monotonic() + 20
            while again.recv(65536):  # its part of the handshake, to which the old answer does not fit
                assert time.monotonic() < until_s
        assert still_serves(port, str(key))


def all_that_a_client_says(port: int, key: Path) -> bytes:
    """Its bytes, as they were on the network, from the handshake to its hello, which is answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(key)
    incoming, outgoing, said = ssl.MemoryBIO(), ssl.MemoryBIO(), io.BytesIO()
    secure = context.wrap_bio(incoming, outgoing, server_hostname=read_key(key).ident)
    with socket.create_connection(("127.0.0.1", port), 10) as real:
        for step in (
            secure.do_handshake,
            secure.do_handshake,
            lambda: secure.write(framed(HELLO, schema.hello("loader"))),
        ):
            with contextlib.suppress(ssl.SSLWantReadError):
                step()
            data = outgoing.read()
            said.write(data)
            real.sendall(data)
            if secure.version() is None or step != secure.do_handshake:
                incoming.write(real.recv(65536))
        assert secure.read(4096)[:2] == MAGIC.to_bytes(2, "little")
    return said.getvalue()
