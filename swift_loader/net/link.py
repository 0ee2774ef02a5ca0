"""One connection, with or without TLS: it never waits but where it is given a limit, and any thread may use it.

With TLS, reading and writing change the same state, so they take turns; none of them waits while it has its turn.
"""

from __future__ import annotations

import array
import contextlib
import math
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable

from swift_loader.net.frames import write_head

SILENCE_S = 3.0
"""Nothing from the other end for so long means that it is gone: it was to say something each second."""
BEAT_S = 0.8
"""How often something is said where there is nothing to say."""
_IDLE_S, _BETWEEN_S, _PROBES = 2, 1, 4
_UNANSWERED_MS = 6_000
#: Well below what a poll can be told.
_LONGEST_WAIT_S = 3600.0
#: What TLS says where keys do not fit. All else that it says is of bytes that were changed on their way.
_OF_KEYS = ("certificate", "unknown ca", "unrecognized name")
#: More than this at once would be copied out of the processor's caches.
_CHUNK_NBYTES = 1 << 18
#: Files that came and that nobody has taken yet: more than these mean no good.
_MOST_FILES = 4
_BESIDE_NBYTES = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize)


class LinkLost(Exception):
    """The other end has gone, or does not answer: why, in words."""


class LinkRefused(LinkLost):
    """The other end does not want us: the keys do not fit."""


class Link:
    """One connection.

    Args:
        connected: What it is; with TLS, its handshake may still be to come.
        peer: What to call the other end.
    """

    def __init__(self, connected: socket.socket, peer: str) -> None:
        self.peer = peer
        self.key = ""
        """The name of the key that the other end has shown; empty where none was asked for."""
        self.heard_s = time.monotonic()
        """When something came last."""
        self.takes_files = False
        """Whether descriptors may come along."""
        self.files: deque[int] = deque()
        """Those that have, and are the link's until somebody takes them."""
        self._socket = connected
        self._is_secure = isinstance(connected, ssl.SSLSocket)
        self._turn = threading.Lock()
        connected.settimeout(0.0)
        tuned(connected)

    def fileno(self) -> int:
        """For poll; what TLS has read and not given yet is not seen there: receive until nothing comes."""
        return self._socket.fileno()

    @property
    def socket(self) -> socket.socket:
        """What it is made of."""
        return self._socket

    def receive_some(self, room: memoryview) -> int:
        """How many bytes came into ``room``; 0 if there are none now.

        Raises:
            LinkLost: if none will come.
        """
        try:
            with self._turn if self._is_secure else _nothing:
                count = self._receive_with_files(room) if self.takes_files else self._socket.recv_into(room)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise lost(error) from error
        if count == 0:
            raise LinkLost("the connection was closed")
        self.heard_s = time.monotonic()
        return count

    def _receive_with_files(self, room: memoryview) -> int:
        flags = socket.MSG_CMSG_CLOEXEC
        count, ancillary, found, _ = self._socket.recvmsg_into([room], _BESIDE_NBYTES, flags)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.files.extend(array.array("i", data))
        if found & socket.MSG_CTRUNC or len(self.files) > _MOST_FILES:
            raise LinkLost("files came along for which this process has no room: raise the limit (ulimit -n)")
        return count

    def send_with_file(self, data: bytes, fd: int, silent_s: float = SILENCE_S) -> None:
        """Sends this, and the descriptor beside its first byte. Raises as `send` does."""
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        while True:
            try:
                count = self._socket.sendmsg([data], beside)
            except BlockingIOError:
                if not self.wait(select.POLLOUT, silent_s):
                    raise LinkLost(f"{self.peer} has taken nothing for {silent_s:g} s") from None
            except OSError as error:
                raise lost(error) from error
            else:
                self.send([data[count:]], silent_s)
                return

    def send_some(self, data: memoryview) -> int:
        """How many of these bytes were taken; 0 if none can be now.

        Raises:
            LinkLost: if none can be any more.
        """
        try:
            with self._turn if self._is_secure else _nothing:
                return self._socket.send(data[:_CHUNK_NBYTES] if self._is_secure else data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise lost(error) from error

    def wait(self, events: int, timeout_s: float) -> bool:
        """Waits until it can be read from or written to, as poll says it."""
        poll = select.poll()
        poll.register(self._socket, events)
        return bool(poll.poll(min(max(0.0, timeout_s), _LONGEST_WAIT_S) * 1000))

    def send(self, parts: Iterable[memoryview | bytes], silent_s: float = SILENCE_S) -> None:
        """Sends all of it, and waits for so long at most in which nothing of it is taken; `math.inf`: for ever.

        Raises:
            LinkLost: if it cannot.
        """
        for part in parts:
            left = memoryview(part).cast("B")
            while left.nbytes:
                count = self.send_some(left)
                left = left[count:]
                if count == 0 and not self.wait(select.POLLOUT, silent_s) and silent_s < math.inf:
                    raise LinkLost(f"{self.peer} has taken nothing for {silent_s:g} s")

    def say(self, kind: int, meta: bytes = b"", seq: int = 0) -> None:
        """Sends one frame without bulk. Raises as `send` does."""
        self.send([write_head(kind, len(meta), seq) + meta])

    def cut(self) -> None:
        """Ends the connection for both sides, also for a thread that waits for it; `close` comes after that thread."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS's own would let others write in the clear

    def close(self) -> None:
        """May be called twice."""
        while self.files:
            os.close(self.files.popleft())
        with contextlib.suppress(OSError):
            self._socket.close()


def tuned(connected: socket.socket) -> None:
    """Nothing waits to be sent together, and a peer that is cut off is found."""
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    tcp = socket.IPPROTO_TCP
    with contextlib.suppress(OSError):  # gone meanwhile: the next call says so
        connected.setsockopt(tcp, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(tcp, socket.TCP_KEEPIDLE, _IDLE_S)
        connected.setsockopt(tcp, socket.TCP_KEEPINTVL, _BETWEEN_S)
        connected.setsockopt(tcp, socket.TCP_KEEPCNT, _PROBES)
        connected.setsockopt(tcp, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)


def lost(error: OSError) -> LinkLost:
    """What an error of the system means, in words."""
    if isinstance(error, ssl.SSLError):
        reason = error.reason or error.strerror or "TLS failed"
        told = reason.replace("_", " ").lower()
        if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            return LinkLost("the connection was closed")
        return LinkRefused(told) if any(word in told for word in _OF_KEYS) else LinkLost(told)
    return LinkLost((error.strerror or str(error) or type(error).__name__).lower())


_nothing: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
