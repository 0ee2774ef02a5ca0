"""Who comes to a server's door: each is let in when it has shown a key and said hello, and sent away when it has not.

Strangers cost little: there are never more than a few hundred, each is read from a few thousand bytes at most and has
five seconds; where there is no room for another, the one that has been there longest goes. Nobody waits for any.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from swift_loader.errors import ConfigError, ProtocolError
from swift_loader.net import schema
from swift_loader.net.address import Address, is_loopback
from swift_loader.net.dial import shaken
from swift_loader.net.frames import HELLO, REFUSED, STRANGER
from swift_loader.net.keys import Keys
from swift_loader.net.link import Link, LinkLost
from swift_loader.net.neighbours import is_trusted
from swift_loader.net.receiver import SMALL_BUFFER_NBYTES, Receiver

MOST_STRANGERS, _MOST_OF_ONE_HOST = 256, 64
PATIENCE_S = 5.0
_AT_ONCE = 64
_TOLD_EACH_S = 60.0
_log = logging.getLogger("swift_loader.server")


@dataclass(slots=True)
class Guest:
    """A client that may come in."""

    link: Link
    receiver: Receiver
    hello: schema.Hello
    certificate: bytes | None
    """What it has shown, where keys are asked for."""

    @property
    def name(self) -> str:
        """What to call it: its key's name, what it says its name is, and where it comes from."""
        return " ".join(filter(None, (self.link.key, printable(self.hello.client), self.link.peer)))


@dataclass(slots=True, eq=False)
class _Stranger:
    connected: socket.socket
    host: str
    until_s: float
    is_shaken: bool
    link: Link | None = None
    receiver: Receiver | None = None


@dataclass(slots=True)
class _Told:
    """When something was said of a host last."""

    at: dict[str, float] = field(default_factory=dict)

    def is_due(self, host: str) -> bool:
        now = time.monotonic()
        if now - self.at.get(host, -_TOLD_EACH_S) < _TOLD_EACH_S:
            return False
        self.at = {other: then for other, then in self.at.items() if now - then < _TOLD_EACH_S}
        self.at[host] = now
        return True


class Doorman:
    """Stands at the door of one server.

    Args:
        doors: Sockets that listen.
        keys: Whom to let in; None: processes of this user on this machine.
        asks_for: What clients must have come for.
    """

    def __init__(self, doors: Iterable[socket.socket], keys: Keys | None, asks_for: str) -> None:
        self._doors = {door.fileno(): door for door in doors}
        self._keys = keys
        self._context = None if keys is None else keys.context()
        self._asks_for = asks_for
        self._strangers: dict[int, _Stranger] = {}
        self._told = _Told()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        for fd, door in self._doors.items():
            door.settimeout(0.0)
            self._poll.register(fd, select.POLLIN)

    @property
    def fds(self) -> list[int]:
        """Those of strangers, and of the doors: a child that is forked for a guest has nothing to do with them."""
        return [*self._strangers, *self._doors, self._spare]

    def watch(self, fd: int) -> None:
        """Has `turn` come back when there is something to read here."""
        self._poll.register(fd, select.POLLIN)

    def turn(self, timeout_s: float) -> tuple[list[Guest], set[int]]:
        """Waits for so long that something happens: who may come in now, and which of those watched can be read."""
        soonest = min((one.until_s for one in self._strangers.values()), default=float("inf"))
        wait_s = max(0.0, min(timeout_s, soonest - time.monotonic()))
        ready = {fd for fd, _ in self._poll.poll(wait_s * 1000)}
        guests = []
        for fd in ready & self._strangers.keys():
            guest = self._heard(self._strangers[fd])
            guests += [] if guest is None else [guest]
        for fd in ready & self._doors.keys():
            self._open(self._doors[fd])
        now = time.monotonic()
        for stranger in [one for one in self._strangers.values() if one.until_s <= now]:
            self._send_away(stranger, f"said nothing that was understood for {PATIENCE_S:g} s")
        return guests, ready - self._doors.keys()

    def refuse(self, guest: Guest, why: str, text: str) -> None:
        """Tells a client why it may not come in, and closes."""
        _refuse(guest.link, why, text)

    def close(self) -> None:
        """Sends strangers away; the doors are their owner's."""
        for stranger in list(self._strangers.values()):
            self._drop(stranger)
        os.close(self._spare)

    def _open(self, door: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connected, address = door.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor is left: whoever waits longest makes room, and this one may come again
                self._make_room(door)
                return
            self._take(connected, _host_of(connected, address))

    def _take(self, connected: socket.socket, host: str) -> None:
        if self._context is None or connected.family == socket.AF_UNIX:
            if not is_trusted(connected):
                self._tell(host, "is another user's, and this server has no keys")
                connected.close()
                return
        else:
            connected = self._context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
        connected.settimeout(0.0)
        of_host = [one for one in self._strangers.values() if one.host == host]
        if len(of_host) >= _MOST_OF_ONE_HOST:
            self._send_away(of_host[0], "has too many connections that say nothing")
        elif len(self._strangers) >= MOST_STRANGERS:
            self._send_away(next(iter(self._strangers.values())), "made room for others")
        stranger = _Stranger(
            connected, host, time.monotonic() + PATIENCE_S, is_shaken=not isinstance(connected, ssl.SSLSocket)
        )
        self._strangers[connected.fileno()] = stranger
        self._poll.register(connected, select.POLLIN)

    def _heard(self, stranger: _Stranger) -> Guest | None:
        try:
            return self._advanced(stranger)
        except LinkLost as error:
            self._send_away(stranger, f"has gone: {error}")
        except ProtocolError as error:
            self._send_away(stranger, f"said what is no hello: {error}")
        return None

    def _advanced(self, stranger: _Stranger) -> Guest | None:
        if not stranger.is_shaken:
            assert isinstance(stranger.connected, ssl.SSLSocket)
            if not shaken(stranger.connected):
                return None
            stranger.is_shaken = True
        if stranger.link is None or stranger.receiver is None:
            stranger.link = Link(stranger.connected, stranger.host)
            stranger.receiver = Receiver(stranger.link, STRANGER, buffer_nbytes=SMALL_BUFFER_NBYTES)
        frame = stranger.receiver.read()
        if frame is None:
            return None
        if frame.kind != HELLO:
            raise ProtocolError(f"a frame of kind {frame.kind}")
        hello = schema.read(schema.Hello, frame.meta)
        return self._let_in(stranger, stranger.link, stranger.receiver, hello)

    def _let_in(self, stranger: _Stranger, link: Link, receiver: Receiver, hello: schema.Hello) -> Guest | None:
        self._forget(stranger)
        certificate = None
        if self._keys is not None and isinstance(link.socket, ssl.SSLSocket):
            certificate = link.socket.getpeercert(binary_form=True)
            name = self._keys.holds(certificate)
            if name is None:
                link.close()
                return None
            link.key = printable(name)
        if schema.common_version(hello) is None:
            versions = f"{schema.LOWEST} to {schema.HIGHEST} (package {schema.PACKAGE})"
            theirs = f"{hello.lowest} to {hello.highest} (package {printable(hello.package)})"
            _refuse(link, "version", f"this server speaks versions {versions} of the protocol, this client {theirs}")
            return None
        if hello.asks_for != self._asks_for:
            wanted = printable(hello.asks_for)
            _refuse(link, "service", f"this server has a {self._asks_for} and was asked for a {wanted}")
            return None
        return Guest(link, receiver, hello, certificate)

    def _make_room(self, door: socket.socket) -> None:
        oldest = next(iter(self._strangers.values()), None)
        if oldest is not None:
            self._send_away(oldest, "made room: there are no descriptors left")
            return
        os.close(self._spare)
        with contextlib.suppress(OSError):
            door.accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _send_away(self, stranger: _Stranger, why: str) -> None:
        self._drop(stranger)
        self._tell(stranger.host, why)

    def _drop(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        with contextlib.suppress(OSError):
            stranger.connected.close()

    def _forget(self, stranger: _Stranger) -> None:
        fd = stranger.connected.fileno()
        self._strangers.pop(fd, None)
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._poll.unregister(fd)

    def _tell(self, host: str, why: str) -> None:
        if self._told.is_due(host):
            _log.warning("a connection from %s %s (others like it are not told for a minute)", host, printable(why))


def listening(address: Address, *, has_key: bool) -> socket.socket:
    """A socket that listens there.

    Raises:
        ConfigError: if it may not, or cannot.
    """
    if not address.is_local and not has_key:
        raise ConfigError(
            f"whoever reaches {address} could connect: a server that listens to other machines needs a key "
            "(swift-loader keygen makes one), or listens to 127.0.0.1 only"
        )
    try:
        if address.path:
            return _listening_at(address.path)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server((address.host, address.port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {address}: {error.strerror}. If another server has it, stop that one or take another "
            "port"
        ) from error


def _listening_at(path: str) -> socket.socket:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with (
            contextlib.suppress(ConnectionRefusedError, FileNotFoundError),
            contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as other,
        ):
            other.settimeout(1.0)
            other.connect(path)
            raise OSError(98, "address already in use")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - what a server that was killed has left
        before = os.umask(0o177)
        try:
            door.bind(path)
        finally:
            os.umask(before)
        door.listen(1024)
    except BaseException:
        door.close()
        raise
    return door


def printable(text: str, most: int = 120) -> str:
    """What somebody else has said, fit for a log: on one line, cut, and nothing in it that a terminal obeys."""
    shown = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def _refuse(link: Link, why: str, text: str) -> None:
    with contextlib.suppress(LinkLost):
        link.say(REFUSED, schema.write(schema.Refused(why, text[:1000])))
    link.close()


def _host_of(connected: socket.socket, address: object) -> str:
    if connected.family == socket.AF_UNIX:
        return "this machine"
    host = str(address[0]) if isinstance(address, tuple) and address else "?"
    return "this machine" if is_loopback(host) else host
