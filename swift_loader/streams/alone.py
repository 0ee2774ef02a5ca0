"""A server's stream, run in the server's own process where none may be forked: for one client at a time.

    this thread      runs the stream, for the client that is there or comes next
    another          the door, which talks to clients

Whoever comes next has the stream as it is then: from the epoch on that follows.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

from swift_loader.errors import DataError
from swift_loader.streams.door import PRODUCER, Door
from swift_loader.streams.producer import Producer

if TYPE_CHECKING:
    from swift_loader.net.keys import Keys

_JOIN_S = 10.0


class Alone:
    """Runs a stream for one client after the other."""

    def __init__(self, stream: Any, door: socket.socket, hwm: int, keys: Keys | None) -> None:
        self._stream = stream
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door = Door([door], self._theirs, keys, hwm, most_sessions=1)
        self._thread = threading.Thread(target=self._keep_the_door, name="swift-door", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Until it is interrupted."""
        number = 0
        while True:
            number += 1
            with contextlib.suppress(BlockingIOError):
                while self._ours.recv(64, socket.MSG_DONTWAIT):  # who has come and gone, which is seen here anyway
                    pass
            ours, theirs = socket.socketpair()
            with theirs:
                with ours:
                    socket.send_fds(self._ours, [PRODUCER + str(number).encode()], [ours.fileno()])
                Producer(self._stream, theirs, _tell).run()

    def close(self) -> None:
        """Ends the connections, and the threads."""
        self._ours.close()
        self._thread.join(_JOIN_S)
        self._theirs.close()

    def _keep_the_door(self) -> None:
        try:
            self._door.run()
        finally:
            self._door.close()


def _tell(why_not: str) -> None:
    if why_not:
        raise DataError(why_not)
