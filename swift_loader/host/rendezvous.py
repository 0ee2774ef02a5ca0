"""Processes of one user on one host find each other by an abstract socket: no file, gone with whoever holds it."""

from __future__ import annotations

import errno
import os
import socket
import struct
from hashlib import blake2b

_CREDENTIALS = struct.Struct("3i")
_QUEUE = 256


def meeting_name(kind: str, what: str) -> str:
    """The name by which this user's processes find those that have to do with ``what``."""
    return f"\0{kind}-{os.geteuid()}-{blake2b(what.encode(), digest_size=12).hexdigest()}"


def offered(name: str) -> socket.socket | None:
    """The socket at which this process is found; None if another one is already.

    Raises:
        OSError: if there are no such sockets.
    """
    offering = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        offering.bind(name)
        offering.listen(_QUEUE)
        offering.settimeout(0.0)
        return offering
    except OSError as error:
        offering.close()
        if error.errno != errno.EADDRINUSE:
            raise
    return None


def met(name: str, wait_s: float) -> socket.socket | None:
    """A socket to whoever is found there, which waits so long for each message; None if nobody is.

    Raises:
        PermissionError: if it is another user.
    """
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.settimeout(wait_s)
    try:
        asking.connect(name)
        if not is_same_user(asking):
            raise PermissionError(errno.EPERM, "somebody else is found under this name")
        return asking
    except (ConnectionError, TimeoutError):  # it is just going, or too busy
        asking.close()
    except BaseException:
        asking.close()
        raise
    return None


def is_same_user(peer: socket.socket) -> bool:
    """Whether the other end is a process of this user."""
    return user_of(peer) == os.geteuid()


def user_of(peer: socket.socket) -> int:
    """The user whose process is at the other end."""
    return _peer(peer)[1]


def process_of(peer: socket.socket) -> int:
    """The process at the other end: that which has last said that it listens."""
    return _peer(peer)[0]


def _peer(peer: socket.socket) -> tuple[int, int, int]:
    pid, uid, gid = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid
