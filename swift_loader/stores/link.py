"""One thread's connection to the host's fetcher: found by its name, or started, and found again when it has died."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakSet

from swift_loader.errors import ShardError
from swift_loader.host.procfs import is_stopped
from swift_loader.host.rendezvous import met, offered, process_of
from swift_loader.host.systems import in_forked_children
from swift_loader.stores.messages import Message, receive, send
from swift_loader.stores.page import Arena
from swift_loader.stores.starting import start

#: What the fetcher's process is called.
NAME = "swift-fetcher"
_CONNECT_S = 20.0
_LOOK_MS = 500
_FIRST_PAUSE_MS, _LAST_PAUSE_MS = 1, 50
#: So long it is believed that the fetcher does what it was asked to: its own budget for an outage, and more.
_ANSWER_S = 180.0

_open: WeakSet[Link] = WeakSet()
_listening: set[socket.socket] = set()


def _leave_to_the_parent() -> None:
    """A child asks by connections of its own; and a fetcher's death must be seen though the child lives on."""
    for link in list(_open):
        link.close()
    for each in list(_listening):
        each.close()


in_forked_children(_leave_to_the_parent)


class Link:
    """A connection. Each message gets one answer, in order; for one thread.

    Args:
        name: By which the fetcher is found.
        hello: What it is told first.
        fds: What goes with that.

    Raises:
        ConnectionError: if there is none to be had.
    """

    def __init__(self, name: str, hello: dict[str, Any], fds: Sequence[int]) -> None:
        self._owed = 0
        self.told: set[Any] = set()
        """What the fetcher has been told by this connection, in words of who tells it."""
        self._pid = 0
        self._socket = _connected(name)
        _open.add(self)
        try:
            message = self._asked(hello, fds)
            self._pid = message.words["pid"]
            self.arena = Arena(*message.fds)
            message.close()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """May be called twice."""
        self._socket.close()

    @property
    def is_closed(self) -> bool:
        """Whether it is, or was in the process that this one was forked from."""
        return self._socket.fileno() < 0

    def __del__(self) -> None:
        self.close()

    def ask(self, words: dict[str, Any], fds: Sequence[int] = ()) -> Message:
        """The answer to that.

        Raises:
            ConnectionError: if the fetcher has died.
            Exception: what the fetcher says that happened.
        """
        try:
            while self._owed:
                self._next().close()
                self._owed -= 1
            return self._asked(words, fds)
        except (TimeoutError, BlockingIOError) as error:
            raise ConnectionResetError("the fetcher reads nothing") from error

    def tell(self, words: dict[str, Any]) -> dict[str, Any]:
        """Says it, and does not wait for the answer; gives back what was answered to what was told before."""
        answered: dict[str, Any] = {}
        try:
            while self._owed and self._is_there(0):
                message = self._next()
                self._owed -= 1
                answered = message.words
                message.close()
            send(self._socket, words)
            self._owed += 1
        except (TimeoutError, BlockingIOError) as error:
            raise ConnectionResetError("the fetcher reads nothing") from error
        return answered

    def _asked(self, words: dict[str, Any], fds: Sequence[int]) -> Message:
        send(self._socket, words, fds)
        message = self._next()
        if "error" in message.words:
            message.close()
            raise error_of(message.words["error"])
        return message

    def _next(self) -> Message:
        until = monotonic() + _ANSWER_S
        while not self._is_there(_LOOK_MS):
            pid = self._pid or _fetcher_behind(self._socket)
            if pid and is_stopped(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # whoever stopped it cannot have meant all trainings to stand still
            if monotonic() > until:
                raise ConnectionResetError("the fetcher does not answer")
        return receive(self._socket)

    def _is_there(self, wait_ms: int) -> bool:
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(wait_ms))


def _fetcher_behind(link: socket.socket) -> int:
    """Its pid, if it listens itself already; 0 as long as whoever has started it is believed to."""
    pid = process_of(link)
    with suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == NAME:
            return pid
    return 0


def _connected(name: str) -> socket.socket:
    until, pause_ms = monotonic() + _CONNECT_S, _FIRST_PAUSE_MS
    while monotonic() < until:
        found = met(name, _CONNECT_S)
        if found is not None:
            return found
        listening = offered(name)
        if listening is None:  # another one was quicker; or it is just going
            select.poll().poll(pause_ms)
            pause_ms = min(2 * pause_ms, _LAST_PAUSE_MS)
            continue
        _listening.add(listening)
        try:
            start(listening)
        except OSError as error:
            raise ShardError(f"no process can be started that fetches: {error.strerror}") from error
        finally:
            _listening.discard(listening)
            listening.close()
    raise ShardError(f"the process that fetches from stores could not be reached within {_CONNECT_S:.0f} s")


def error_of(told: dict[str, Any]) -> Exception:
    """The error that the fetcher has told of."""
    import swift_loader.errors as known  # noqa: PLC0415 - only where something went wrong

    text = told["text"]
    if told["type"] == "FileNotFoundError":
        return FileNotFoundError(text)
    kind = getattr(known, told["type"], ShardError)
    error: Exception = kind(text)
    if isinstance(error, ShardError):
        error.offset = told.get("offset")
        error.within(told.get("shard"), told.get("set"))
    return error


def told_of(error: BaseException) -> dict[str, Any]:
    """An error, to be told."""
    kind = "FileNotFoundError" if isinstance(error, FileNotFoundError) else type(error).__name__
    told: dict[str, Any] = {"type": kind, "text": str(error.args[0]) if error.args else kind}
    if isinstance(error, ShardError):
        told.update(shard=error.shard, set=error.set, offset=error.offset)
    return told
