"""Where workers are forked from. A nursery outlives the processes that do it: one that dies is replaced.

Copies      copies of the trainer, with the recipe and its dataset: one at work, and its twin, should that one die
Shared      a server for all loaders of this process, which begins in the background when the first is constructed
Prepared    a branch of that one, which has built the dataset of one loader
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from swift_loader.engines import copied
from swift_loader.engines.server import IsClosing, Server, ServerGone, ServerSpoiled
from swift_loader.errors import LoaderClosed, SwiftLoaderError, WorkerStartFailed
from swift_loader.pool import faultpoints
from swift_loader.pool.heritage import Heritage
from swift_loader.pool.policy import MAX_BIRTHS
from swift_loader.pool.recipe import Recipe

_T = TypeVar("_T")
#: A server that somebody else asks at the moment is waited for in pieces of this length.
_LOOK_S = 0.25


class Nursery(Protocol):
    """What an engine asks of it."""

    def fork(self, name: str, fds: Sequence[int]) -> tuple[int, int, Server]:
        """Forks a worker: its pid, a pidfd, and who keeps its number until it is buried there.

        Raises:
            WorkerStartFailed: if it cannot.
            LoaderClosed: if that is no longer waited for.
        """
        ...

    def will_need(self, libraries: Sequence[str]) -> None:
        """Workers to come had better be born with these; waits for nothing."""
        ...

    def close(self) -> None:
        """Ends what is this loader's alone."""
        ...


class Copies:
    """Copies of the trainer as it was when this was made."""

    def __init__(self, recipe: Recipe, is_closing: IsClosing) -> None:
        self._is_closing = is_closing
        self._to_load: Sequence[str] = ()
        self._twin: Server | None = None
        self._server: Server | None = Server.copied(recipe)
        try:
            if recipe.config.share_dataset:
                self._server.prepare(None, (), is_closing)
            self._have_twin(self._server)
        except BaseException:
            self.close()
            raise

    def fork(self, name: str, fds: Sequence[int]) -> tuple[int, int, Server]:
        """See `Nursery`."""
        while True:
            server = self._server
            if server is None:
                raise WorkerStartFailed(
                    "the copies of the trainer that workers are forked from have died; they cannot be made again"
                )
            try:
                self._have_twin(server)
                to_load, self._to_load = self._to_load, ()
                if to_load:
                    server.load(to_load, self._is_closing)
                return *server.fork(name, fds, self._is_closing), server
            except ServerGone:
                server.end()
                self._server, self._twin = self._twin, None

    def will_need(self, libraries: Sequence[str]) -> None:
        """See `Nursery`."""
        self._to_load = libraries

    def _have_twin(self, server: Server) -> None:
        if self._twin is not None and self._twin.is_gone:
            self._twin.end()
            server.bury(self._twin.pid)
            self._twin = None
        if self._twin is None:
            server.is_unique = True
            with contextlib.suppress(WorkerStartFailed):  # the system refuses it: then without
                self._twin = server.branch(self._is_closing)
        server.is_unique = self._twin is None

    def close(self) -> None:
        """See `Nursery`."""
        server, twin = self._server, self._twin
        self._server = self._twin = None
        if twin is not None:
            twin.close()
        if server is not None:
            if twin is not None:
                server.bury(twin.pid)
            server.close()


class Shared:
    """Servers that all loaders of this process share, for as long as it lives. What they lack, workers are sent."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # a signal handler may come while this thread asks
        self._servers: dict[bool, Server] = {}
        """By whether it is a copy of the trainer. That of loaders which ask for a fork server is none."""
        self._loaded: dict[int, set[str]] = {}
        self._spoilers: set[str] = set()
        """What no server is to load again."""
        self._for: object = None

    def begin(self, modules: Sequence[str], *, may_be_copy: bool) -> None:
        """Has one begin, if there is none, and waits for nothing; where the system refuses, that is told at the start.

        It is a copy where that is harmless, since it is there at once. Where there is an accelerator, the script will
        use it before the loader starts, and so has ranks that are to agree: there it is an interpreter.
        """
        if (may_be_copy and self._servers) or not self._lock.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(SwiftLoaderError, OSError):
                self._have(modules, is_copy=may_be_copy and not copied.has_accelerator() and copied.harm() is None)
        finally:
            self._lock.release()

    def fork(
        self, name: str, fds: Sequence[int], modules: Sequence[str], is_closing: IsClosing, *, may_be_copy: bool
    ) -> tuple[int, int, Server]:
        """As `Nursery.fork`, by one that has loaded ``modules``."""

        def fork(server: Server) -> tuple[int, int, Server]:
            return *server.fork(name, fds, is_closing), server

        return self._asked(fork, modules, is_closing, may_be_copy=may_be_copy)

    def branch(self, modules: Sequence[str], is_closing: IsClosing, *, may_be_copy: bool) -> tuple[Server, Server]:
        """One for a loader alone, and the one that it is a child of."""

        def branch(server: Server) -> tuple[Server, Server]:
            return server.branch(is_closing), server

        return self._asked(branch, modules, is_closing, may_be_copy=may_be_copy)

    def end(self) -> None:
        """Ends them, without waiting for what they are doing; the next loader begins another."""
        has_turn = self._lock.acquire(timeout=_LOOK_S)  # else a thread that still asks one will get no answer
        try:
            servers = list(self._servers.values())
            self._servers, self._loaded = {}, {}
        finally:
            if has_turn:
                self._lock.release()
        for server in servers:
            server.end()

    @property
    def fds(self) -> set[int]:
        """What this process holds for them, for as long as it lives."""
        return {fd for server in list(self._servers.values()) for fd in server.fds}

    @property
    def pids(self) -> set[int]:
        """Their processes."""
        return {server.pid for server in list(self._servers.values())}

    def leave_to_the_parent(self) -> None:
        """In a forked child of the trainer."""
        for server in self._servers.values():
            server.let_go()
        self._forget()

    def _asked(
        self, question: Callable[[Server], _T], modules: Sequence[str], is_closing: IsClosing, *, may_be_copy: bool
    ) -> _T:
        with self._turn(is_closing):
            is_copy = may_be_copy and False not in self._servers and True in self._servers
            server = self._have(modules, is_copy=is_copy)
            loaded = self._loaded[server.pid]
            missing = [name for name in modules if name not in loaded and name not in self._spoilers]
            try:
                if missing:
                    server.load(missing, is_closing)
                    loaded.update(missing)
                return question(server)
            except ServerGone as error:
                if isinstance(error, ServerSpoiled):
                    self._spoilers.update(missing)
                self._servers.pop(is_copy, None)
                server.end()
                raise

    @contextlib.contextmanager
    def _turn(self, is_closing: IsClosing) -> Iterator[None]:
        while not self._lock.acquire(timeout=_LOOK_S):
            if is_closing():
                raise LoaderClosed("the loader was closed while it started a worker")
        try:
            yield
        finally:
            self._lock.release()

    def _have(self, modules: Sequence[str], *, is_copy: bool) -> Server:
        if self._for != (now := _who()):  # whoever has given up rights must not be served with those it had
            self.end()
            self._for = now
        server = self._servers.get(is_copy)
        if server is None:
            server = Server.copied() if is_copy else Server.started(modules)
            self._servers[is_copy] = server
            self._loaded[server.pid] = set(sys.modules) if is_copy else set(modules)
        return server


def _who() -> tuple[object, ...]:
    """Whom they serve, and what cannot be changed in them later."""
    fixed = os.environ.get("PYTHONHASHSEED"), os.environ.get(faultpoints.NAME)
    return os.getresuid(), os.getresgid(), tuple(os.getgroups()), sys.executable, *fixed


class Prepared:
    """A server that has built the dataset of one loader, from its payload."""

    def __init__(self, payload_fd: int, modules: Sequence[str], is_closing: IsClosing, *, may_be_copy: bool) -> None:
        self._payload_fd, self._modules = payload_fd, modules
        self._may_be_copy = may_be_copy
        self._is_closing = is_closing
        self._heritage = Heritage.of_trainer()
        self._server: Server | None = None
        self._parent: Server | None = None
        # One that somebody ends while it builds the dataset is started again, but not for ever.
        for _ in range(MAX_BIRTHS - 1):
            with contextlib.suppress(ServerGone):
                self._server_or_new()
                return
        self._server_or_new()

    def fork(self, name: str, fds: Sequence[int]) -> tuple[int, int, Server]:
        """See `Nursery`."""
        server = self._server_or_new()
        try:
            return *server.fork(name, fds, self._is_closing), server
        except ServerGone:
            self._drop(Server.end)
            raise

    def will_need(self, libraries: Sequence[str]) -> None:
        """See `Nursery`. It has loaded them itself."""

    def close(self) -> None:
        """See `Nursery`."""
        self._drop(Server.close)

    def _server_or_new(self) -> Server:
        if self._server is not None:
            return self._server
        if self._is_closing():
            raise LoaderClosed("the loader was closed while it started a worker")
        self._server, self._parent = shared.branch(self._modules, self._is_closing, may_be_copy=self._may_be_copy)
        try:
            self._server.prepare(self._heritage, [self._payload_fd], self._is_closing)
        except BaseException:
            self._drop(Server.end)
            raise
        return self._server

    def _drop(self, end: Callable[[Server], None]) -> None:
        server, parent = self._server, self._parent
        self._server = self._parent = None
        if server is not None and parent is not None:
            end(server)
            parent.bury(server.pid)


shared = Shared()
atexit.register(shared.end)
os.register_at_fork(after_in_child=shared.leave_to_the_parent)
