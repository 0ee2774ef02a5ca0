"""Samples in memory, once on a host: who comes first makes two anonymous files, and offers them to those who follow.

They find each other by an abstract socket, whose name tells the user, the samples and the size; it is no file. It is
given along with the files, so whoever holds them offers them, and nobody comes between one who goes and the next. The
files can grow and not shrink, so that nobody is harmed by whoever else has them; memory and name go with the last.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import threading
from contextlib import suppress
from time import monotonic
from weakref import WeakSet

from swift_loader.host.rendezvous import is_same_user, meeting_name, met, offered
from swift_loader.host.systems import in_forked_children
from swift_loader.reuse import index
from swift_loader.reuse.files import Files
from swift_loader.reuse.index import Origin

_WAIT_S = 5.0
_ANSWER_S = 1.0
_LOOK_MS = 60_000
_GREETING = b"swift-cache 2"


_held: WeakSet[HostMemory] = WeakSet()


def _leave_to_the_parent() -> None:
    """A forked child offers nothing, and keeps nothing."""
    for memory in _held:
        memory._let_go()


in_forked_children(_leave_to_the_parent)


class HostMemory:
    """The training process's part: holds the files, and offers them to others of this user.

    Args:
        origin: What the samples are of.
        prefix: The user's own name for it.
        nbytes: The most that they may take.

    Raises:
        OSError: if they cannot be had.
    """

    def __init__(self, origin: Origin, prefix: str | None, nbytes: int) -> None:
        self.name = meeting_name("swift-cache", repr((origin, prefix, nbytes)))
        self._fds: tuple[int, int] | None = None
        self._offering: socket.socket | None = None
        self._wake, self._waker = socket.socketpair()
        try:
            self._offering = self._joined()
        except BaseException:
            self._let_go()
            raise
        self._thread = threading.Thread(
            target=self._offer, args=(self._offering,), name="swift-cache-host", daemon=True
        )
        self._thread.start()
        _held.add(self)

    @property
    def place(self) -> tuple[int, int, int]:
        """For `Memory`: whose the files are, and their descriptors there."""
        assert self._fds is not None
        return os.getpid(), *self._fds

    def abandon(self) -> None:
        """Others may go on with the files; does not wait until they are let go of here."""
        with suppress(OSError):
            self._waker.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Others may go on with the files. May be called twice."""
        self.abandon()
        self._thread.join(_WAIT_S)

    def _let_go(self) -> None:
        for link in (self._wake, self._waker, *filter(None, (self._offering,))):
            link.close()
        fds, self._fds = self._fds, None
        for fd in fds or ():
            os.close(fd)

    def _joined(self) -> socket.socket:
        """The socket at which the files are offered."""
        until = monotonic() + _WAIT_S
        while monotonic() < until:
            offering = offered(self.name)
            if offering is not None:
                try:
                    self._fds = _new_files()
                    return offering
                except BaseException:
                    offering.close()
                    raise
            given = self._given()
            if given is not None:
                return given
        raise TimeoutError(errno.ETIMEDOUT, "whoever keeps them does not answer")

    def _given(self) -> socket.socket | None:
        asking = met(self.name, _ANSWER_S)
        if asking is None:
            return None
        fds: list[int] = []
        with asking, suppress(ConnectionError, TimeoutError):  # it is just going, or too busy
            said, fds, _, _ = socket.recv_fds(asking, len(_GREETING), 3, socket.MSG_CMSG_CLOEXEC)
            if said == _GREETING and len(fds) == 3:  # the files, and where they are offered
                self._fds = fds[0], fds[1]
                offering = socket.socket(fileno=fds[2])
                offering.settimeout(0.0)
                return offering
        for fd in fds:
            os.close(fd)
        return None

    def _offer(self, offering: socket.socket) -> None:
        ready = select.poll()
        for link in (offering, self._wake):
            ready.register(link, select.POLLIN)
        wake = self._wake.fileno()
        try:
            while wake not in {fd for fd, _ in ready.poll(_LOOK_MS)}:
                self._answer(offering)
        finally:
            self._let_go()

    def _answer(self, offering: socket.socket) -> None:
        with suppress(OSError):  # another holder was quicker, or whoever asks is gone again
            other, _ = offering.accept()
            with other:
                if self._fds is not None and is_same_user(other):
                    socket.send_fds(other, [_GREETING], [*self._fds, offering.fileno()])


class Memory:
    """Two files in memory, held by a training process of this host; see `files.Ground`."""

    lock_place = index.LOCK_OPEN

    def __init__(self, place: tuple[int, int, int]) -> None:
        self._pid, self._index, self._data = place

    def lock(self) -> int:
        """See `files.Ground`."""
        return self._opened(self._index)

    def existing(self, *, writable: bool) -> tuple[int, int] | None:  # noqa: ARG002 - they always are
        """See `files.Ground`."""
        return self.fresh()

    def fresh(self) -> tuple[int, int]:
        """See `files.Ground`."""
        index_fd = self._opened(self._index)
        try:
            return index_fd, self._opened(self._data)
        except BaseException:
            os.close(index_fd)
            raise

    def publish(self) -> None:
        """See `files.Ground`."""

    def is_still(self, files: Files) -> bool:  # noqa: ARG002 - they have no name that could be another's
        """See `files.Ground`."""
        return True

    def __str__(self) -> str:
        return "the memory for samples"

    def _opened(self, fd: int) -> int:
        # Opened anew, not inherited: locks belong to the opening.
        return os.open(f"/proc/{self._pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def _new_files() -> tuple[int, int]:
    fds: list[int] = []
    try:
        for name in ("swift-cache-index", "swift-cache-data"):
            fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            fds.append(fd)
            os.fchmod(fd, 0o600)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return fds[0], fds[1]
