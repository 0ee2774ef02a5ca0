"""What carries orders and parcels between a line and its worker.

`Channel` is the protocol; `SocketChannel` the local one: a pair of datagram sockets that keep order and boundaries
and can carry descriptors. A half-written message cannot be: the kernel takes a datagram whole or not at all, so a
worker may be killed at any moment. When either end goes, the other one sees the end of the stream.

The consumer's end receives without letting go of the interpreter lock. Python's own calls let go of it around every
system call and must then win it back. For a call that never waits that is only a loss: with a consumer and two telecom
threads taking turns, a parcel of a small batch cost eleven system calls on the lock, and three with this.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import select
import socket
import struct
from collections.abc import Sequence
from typing import Protocol

from swift_loader.errors import NoRoom
from swift_loader.host.memfile import memory_file

_libc = ctypes.PyDLL(None, use_errno=True)
_FLAGS = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
#: The head of what comes beside a datagram: its size, and two numbers that say that it is descriptors.
_BESIDE = struct.Struct("@Nii")


class _Piece(ctypes.Structure):
    _fields_ = (("place", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


class _Message(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_nbytes", ctypes.c_uint32),
        ("pieces", ctypes.POINTER(_Piece)),
        ("piece_count", ctypes.c_size_t),
        ("beside", ctypes.c_void_p),
        ("beside_nbytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class Receiver:
    """Receives the datagrams of one socket."""

    def __init__(self, max_nbytes: int, max_beside_nbytes: int) -> None:
        self._data = ctypes.create_string_buffer(max_nbytes)
        self._view = memoryview(self._data).cast("B")
        self._beside = ctypes.create_string_buffer(max_beside_nbytes)
        self._max_beside_nbytes = max_beside_nbytes
        piece = _Piece(ctypes.addressof(self._data), max_nbytes)
        beside = ctypes.addressof(self._beside)
        self._message = _Message(None, 0, ctypes.pointer(piece), 1, beside, max_beside_nbytes, 0)
        self._reference = ctypes.byref(self._message)

    def receive(self, fd: int) -> tuple[bytes, list[int], int]:
        """A datagram, the descriptors that came with it, and the flags. Raises as `socket.recvmsg` does."""
        message = self._message
        message.beside_nbytes = self._max_beside_nbytes
        nbytes = _libc.recvmsg(fd, self._reference, _FLAGS)
        if nbytes < 0:
            number = ctypes.get_errno()
            # A signal's turn comes as soon as this returns; until then nothing was received.
            raise OSError(errno.EAGAIN if number == errno.EINTR else number, os.strerror(number))
        fds = self._descriptors(message.beside_nbytes) if message.beside_nbytes else []
        return self._view[:nbytes].tobytes(), fds, message.flags

    def _descriptors(self, nbytes: int) -> list[int]:
        beside = self._beside.raw[:nbytes]
        size, _, _ = _BESIDE.unpack_from(beside)
        return list(array.array("i", beside[_BESIDE.size : size]))


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
        except ConnectionResetError:  # the peer was killed while datagrams of ours lay unread: gone, all the same
            return b"", []
        if flags & _TRUNCATED:  # the kernel has dropped descriptors for which this process had no room, and no others
            for fd in fds:
                os.close(fd)
            raise NoRoom("too many open files to take those of a message: raise the limit (ulimit -n)")
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
