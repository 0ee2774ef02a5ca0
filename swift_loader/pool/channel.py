"""What carries orders and parcels between a line and its worker.

`Channel` is the protocol; `SocketChannel` the local one: a pair of datagram sockets that keep order and boundaries
and can carry descriptors. A half-written message cannot be: the kernel takes a datagram whole or not at all, so a
worker may be killed at any moment. When either end goes, the other one sees the end of the stream.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
from collections.abc import Sequence
from typing import Protocol

from swift_loader.pool.brisk import Receiver
from swift_loader.pool.memfile import memory_file

#: The largest datagram, below the kernel's default for a socket's buffer. A larger message goes as a memory file.
MAX_DATAGRAM = 128 * 1024
_MAX_FDS = 64
_ANCILLARY = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
#: The first byte of a datagram that only says: the message is in the descriptor that came last. No kind is 0.
_ELSEWHERE = b"\0"


_TRUNCATED = int(socket.MSG_CTRUNC)  # as a plain number: the enum's own arithmetic takes a microsecond


class Channel(Protocol):
    """One end of the way between a line and its worker."""

    def fileno(self) -> int:
        """Readable when something has come or the peer has gone."""
        ...

    def send(self, datagram: bytes, fds: Sequence[int] = ()) -> bool:
        """Sends one message; False if there is no room for it now. Raises OSError if the peer has gone."""
        ...

    def receive(self) -> tuple[bytes, list[int]] | None:
        """The next message and its descriptors; None if there is none now; an empty one if the peer has gone."""
        ...

    def close(self) -> None:
        """May be called twice."""
        ...


class SocketChannel:
    """A channel over a socket of this host."""

    def __init__(self, end: socket.socket, *, blocking: bool) -> None:
        self._socket = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._read = self._read_blocking if blocking else Receiver(MAX_DATAGRAM, _ANCILLARY).receive
        end.setblocking(blocking)

    @classmethod
    def pair(cls) -> tuple[SocketChannel, socket.socket]:
        """The consumer's end, and the socket that the worker's end is made of."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours, blocking=False), theirs

    def fileno(self) -> int:
        """See `Channel`."""
        return self._socket.fileno()

    def has_message(self) -> bool:
        """Whether `receive` would return at once."""
        return bool(self._poll.poll(0))

    def send(self, datagram: bytes, fds: Sequence[int] = ()) -> bool:
        """See `Channel`."""
        if len(datagram) > MAX_DATAGRAM:
            return self._send_elsewhere(datagram, fds)
        try:
            if fds:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                self._socket.sendmsg([datagram], ancillary, socket.MSG_NOSIGNAL)
            else:
                self._socket.send(datagram, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        return True

    def receive(self) -> tuple[bytes, list[int]] | None:
        """See `Channel`."""
        try:
            datagram, fds, flags = self._read(self._socket.fileno())
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b"", []
        if flags & _TRUNCATED:
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, "too many open files to take those of a message: raise the limit (ulimit -n)")
        if datagram == _ELSEWHERE:
            return _read_whole(fds.pop()), fds
        return datagram, fds

    def _read_blocking(self, _fd: int) -> tuple[bytes, list[int], int]:
        datagram, ancillary, flags, _ = self._socket.recvmsg(MAX_DATAGRAM, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
        return datagram, _fds_in(ancillary), flags

    def _send_elsewhere(self, message: bytes, fds: Sequence[int]) -> bool:
        fd = memory_file("swift-message")
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(message)
            return self.send(_ELSEWHERE, [*fds, fd])
        finally:
            os.close(fd)

    def close(self) -> None:
        """See `Channel`."""
        self._socket.close()


def _read_whole(fd: int) -> bytes:
    with open(fd, "rb") as file:
        file.seek(0)
        return file.read()


def _fds_in(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)
