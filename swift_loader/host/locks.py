"""Locks of single bytes of a file, among processes, that end with whoever holds them.

Open file description locks: the kernel lets go of them when the last descriptor of that opening closes, at the latest
when its process is killed, and so there is nothing to clean up or to guess. Threads of one process are not kept from
each other. The bytes need not exist: they are names.
"""

from __future__ import annotations

import fcntl
import struct
from threading import Event
from time import monotonic

_FLOCK = struct.Struct("@hhqqi4x")
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.0005, 0.01


class Locks:
    """The locks that one opening of a file holds."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._tick = Event()

    def take(self, place: int, count: int = 1, wait_s: float = 0.0) -> bool:
        """Takes the locks of ``count`` places for us alone, waiting for them that long; whether all were had.

        Raises:
            OSError: if there are no such locks here.
        """
        if self._set(fcntl.F_WRLCK, place, count):
            return True
        until, pause = monotonic() + wait_s, _FIRST_PAUSE_S
        while monotonic() < until:
            self._tick.wait(pause)
            if self._set(fcntl.F_WRLCK, place, count):
                return True
            pause = min(2 * pause, _LAST_PAUSE_S)
        return False

    def share(self, place: int) -> bool:
        """Takes the lock together with all others who share it."""
        return self._set(fcntl.F_RDLCK, place, 1)

    def leave(self, place: int, count: int = 1) -> None:
        """Lets go of them."""
        self._set(fcntl.F_UNLCK, place, count)

    def leave_all(self) -> None:
        """Lets go of all."""
        self._set(fcntl.F_UNLCK, 0, 0)

    def others_hold(self, place: int, count: int = 1) -> bool:
        """Whether anybody else holds, or shares, one of ``count`` places; 0 for all from there on."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, 0, place, count, 0)
        answer = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, asked)
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def _set(self, kind: int, place: int, count: int) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, 0, place, count, 0))
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: somebody has it
            return False
        return True
