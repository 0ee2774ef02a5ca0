"""`start_server`: a stream, run for each client that comes, in a process of its own.

    start_server    has the stream, and never runs it: forks
      the door      talks to clients, knows nothing of the stream
      producers     one for each client, and one ahead, which has begun already

So every client has the stream as it was given to `start_server`: all batches of all epochs, with shuffles and states of
its own; a slow one slows itself, and what crashes in one is no other's affair.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
from typing import Any

from swift_loader.engines.forking import Child, forked, harm_of_forking
from swift_loader.engines.interpreter import status_of
from swift_loader.errors import ConfigError, DataError, PeerError
from swift_loader.host.warn import warn_user
from swift_loader.net.address import DEFAULT_PORT, Address
from swift_loader.net.doorman import listening
from swift_loader.net.keys import Keys
from swift_loader.settings.checks import whole
from swift_loader.streams.alone import Alone
from swift_loader.streams.door import OVER, PRODUCER, TAKEN, be_the_door
from swift_loader.streams.producer import produce
from swift_loader.worker import guard

_log = logging.getLogger("swift_loader.server")
_TURN_S = 1.0
_MOST_TEXT = 60_000


def start_server(
    data_stream: Any,
    port: int = DEFAULT_PORT,
    hwm: int = 10,
    *,
    host: str = "127.0.0.1",
    key: str | list[str] | None = None,
) -> None:
    """Serves a stream to `ServerDataStream`, until the process is ended.

    Args:
        data_stream: What has ``get_epoch_iterator()``. Every client has it as it is now, as if it ran there.
        port: Where to listen.
        hwm: How many batches are made ahead of each client.
        host: The address to listen at. Others than this machine's own need a key.
        key: A file that ``swift-loader keygen`` has made, a folder of such files, or a list of both: who has one of
            these keys may connect, and all is encrypted. Without, only processes of this user on this machine may.

    Raises:
        ConfigError: if it cannot listen there, or may not without a key.
        DataError: if what the stream gives first cannot be sent.

    Example:
        >>> start_server(create_data_stream())  # doctest: +SKIP
    """
    if not callable(getattr(data_stream, "get_epoch_iterator", None)):
        raise ConfigError(f"a stream has get_epoch_iterator(), and a {type(data_stream).__name__} has none")
    hwm = whole("hwm", hwm, least=1)
    address = Address(host, whole("port", port, least=0))
    keys = None if key is None else Keys(key)  # type: ignore[arg-type] # of texts or paths
    guard.have_standard_streams()
    harm = harm_of_forking()
    with contextlib.closing(listening(address, has_key=keys is not None)) as door:
        if harm is not None:
            warn_user(
                f"this server runs its stream in its own process, for one client at a time, since it must not fork: "
                f"{harm}. To serve several, start it in a process of its own, before threads and the use of a GPU"
            )
        server = _Server(data_stream, door, hwm, keys) if harm is None else Alone(data_stream, door, hwm, keys)
        try:
            _log.info("server started: tcp://%s:%s", *door.getsockname()[:2])
            server.run()
        finally:
            server.close()


class _Server:
    """Forks the others, and ends with them."""

    def __init__(self, stream: Any, door: socket.socket, hwm: int, keys: Keys | None) -> None:
        self._stream = stream
        self._door = door
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._producers: dict[int, Child] = {}
        self._number = 0
        self._first, first = os.pipe2(os.O_CLOEXEC)
        self._doorkeeper = forked("swift-door", lambda: be_the_door([door], theirs, keys, hwm), [self._ours.fileno()])
        theirs.close()
        self._fork_producer(first)
        os.close(first)

    def run(self) -> None:
        """Until it is interrupted."""
        while True:
            poll = select.poll()
            for fd in (self._ours.fileno(), self._doorkeeper.pidfd, *([self._first] if self._first >= 0 else [])):
                poll.register(fd, select.POLLIN)
            for child in self._producers.values():
                if child.pidfd >= 0:
                    poll.register(child.pidfd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(_TURN_S * 1000)}
            if self._first in ready:
                self._look_at_the_first()
            if self._doorkeeper.pidfd in ready:
                raise PeerError("the process that talks to this server's clients has ended: start the server anew")
            if self._ours.fileno() in ready:
                self._hear()
            self._bury(ready)

    def close(self) -> None:
        """Ends all that was started."""
        for child in (self._doorkeeper, *self._producers.values()):
            child.end()
        self._ours.close()
        if self._first >= 0:
            os.close(self._first)

    def _hear(self) -> None:
        message = self._ours.recv(64, socket.MSG_DONTWAIT)
        if message[:1] == TAKEN:
            self._fork_producer(-1)
        elif message[:1] == OVER and (child := self._producers.pop(int(message[1:]), None)) is not None:
            child.end()

    def _bury(self, ready: set[int]) -> None:
        """Producers that have ended by themselves: their clients are told by the door, whose connection has ended."""
        for number, child in list(self._producers.items()):
            if child.pidfd in ready:
                _log.error(
                    "the process that ran client %d's stream has ended with status %s", number, status_of(child.pidfd)
                )
                del self._producers[number]
                child.end()

    def _look_at_the_first(self) -> None:
        """Whether the first batch can be sent: if not, no other could."""
        text = os.read(self._first, _MOST_TEXT).decode(errors="replace")
        os.close(self._first)
        self._first = -1
        if text:
            raise DataError(text)

    def _fork_producer(self, first: int) -> None:
        self._number += 1
        ours, theirs = socket.socketpair()
        keep_out = [self._ours.fileno(), self._door.fileno(), ours.fileno()]
        child = forked(f"swift-stream-{self._number}", lambda: produce(self._stream, theirs, first), keep_out)
        self._producers[self._number] = child
        with ours, theirs:
            socket.send_fds(self._ours, [PRODUCER + str(self._number).encode()], [ours.fileno()])
