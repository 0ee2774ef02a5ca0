"""Receiving without letting go of the interpreter lock.

Python's own calls let go of the lock around every system call and must then win it back. For a call that never waits
that is only a loss: with a consumer and two telecom threads taking turns, a parcel of a small batch cost eleven system
calls on the lock, and three with this. For sockets that do not block, of Linux.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import socket
import struct

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
