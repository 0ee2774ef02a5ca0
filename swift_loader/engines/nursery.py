"""Where workers are forked from. A nursery outlives the processes that do it: one that dies is replaced.

Copies      copies of the trainer, with the recipe and its dataset: one at work, and its twin, should that one die
Shared      a lean interpreter for all loaders of this process, which begins in the background before it is needed
Prepared    a branch of that one, which has built the dataset of one loader
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from swift_loader.engines.server import IsClosing, Server, ServerGone
from swift_loader.errors import LoaderClosed, SwiftLoaderError, WorkerStartFailed
from swift_loader.pool.policy import MAX_BIRTHS
from swift_loader.travel.heritage import Heritage
from swift_loader.wire.recipe import Recipe
from swift_loader.worker import faultpoints

_T = TypeVar("_T")
#: A server that somebody else asks at the moment is waited for in pieces of this length.
_LOOK_S = 0.25
#: Known to begin no threads where arithmetic has one: loaded as a server begins.
_HARMLESS = ("cloudpickle", "torch")


@dataclass(slots=True)
class Needs:
    """What workers of a loader had better be born with."""

    modules: list[str] = field(default_factory=list)
    heritage: Heritage = field(default_factory=Heritage.of_trainer)
    """As the modules are to find it."""


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
        server = self._server
        try:
            if server is not None:
                self._have_twin(server)
                to_load, self._to_load = self._to_load, ()
                if to_load:
                    server.load(to_load, None, self._is_closing)
                return *server.fork(name, fds, self._is_closing), server
        except ServerGone:
            assert server is not None
            server.end()
            self._server, self._twin = self._twin, None
            if self._server is not None:
                # Not asked with the same descriptors: the one that died may have forked a worker, which has them.
                raise
        raise WorkerStartFailed(
            "the copies of the trainer that workers are forked from have died; they cannot be made again"
        )

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
            with contextlib.suppress(WorkerStartFailed):  # refused by the system: then without; or the server is gone
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
    """A lean interpreter that all loaders of this process share, for as long as it lives. The rest is sent."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # a signal handler may come while this thread asks
        self._server: Server | None = None
        self._loaded: set[str] = set()
        self._spoilers: set[str] = set()
        """What no server is to load again."""
        self._for: object = None

    def begin(self, modules: Sequence[str]) -> None:
        """Has it begin, if there is none, and waits for nothing; what the system refuses is told at the start."""
        if self._server is not None or not self._lock.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(SwiftLoaderError, OSError):
                self._have(modules)
        finally:
            self._lock.release()

    def fork(self, name: str, fds: Sequence[int], needs: Needs, is_closing: IsClosing) -> tuple[int, int, Server]:
        """As `Nursery.fork`, by one that has loaded what is needed."""

        def fork(server: Server) -> tuple[int, int, Server]:
            return *server.fork(name, fds, is_closing), server

        return self._asked(fork, needs, is_closing)

    def branch(self, needs: Needs, is_closing: IsClosing) -> tuple[Server, Server]:
        """One for a loader alone, and the one that it is a child of."""

        def branch(server: Server) -> tuple[Server, Server]:
            return server.branch(is_closing), server

        return self._asked(branch, needs, is_closing)

    def end(self) -> None:
        """Ends it, without waiting for what it is doing; the next loader begins another."""
        has_turn = self._lock.acquire(timeout=_LOOK_S)  # else a thread that still asks it will get no answer
        try:
            server, self._server = self._server, None
        finally:
            if has_turn:
                self._lock.release()
        if server is not None:
            server.end()

    @property
    def fds(self) -> set[int]:
        """What this process holds for it, for as long as it lives."""
        server = self._server
        return set() if server is None else server.fds

    @property
    def pids(self) -> set[int]:
        """Its process."""
        server = self._server
        return set() if server is None else {server.pid}

    def leave_to_the_parent(self) -> None:
        """In a forked child of the trainer."""
        if self._server is not None:
            self._server.let_go()
        self._forget()

    def _asked(self, question: Callable[[Server], _T], needs: Needs, is_closing: IsClosing) -> _T:
        with self._turn(is_closing):
            server = self._have(needs.modules)
            missing = [name for name in needs.modules if name not in self._loaded | self._spoilers]
            try:
                if missing:
                    self._spoilers.update(missing)  # until they have turned out to be none
                    server.load(missing, needs.heritage, is_closing)
                    self._spoilers.difference_update(missing)
                    self._loaded.update(missing)
                return question(server)
            except ServerGone:
                self._server = None
                server.end()
                raise
            except LoaderClosed:
                self._spoilers.difference_update(missing)
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

    def _have(self, modules: Sequence[str]) -> Server:
        if self._for != (now := _who()):  # whoever has given up rights must not be served with those it had
            self.end()
            self._for = now
        if self._server is None:
            self._loaded = {name for name in modules if name in _HARMLESS}
            self._server = Server.started(sorted(self._loaded))
        return self._server


def _who() -> tuple[object, ...]:
    """Whom they serve, and what cannot be changed in them later."""
    fixed = os.environ.get("PYTHONHASHSEED"), os.environ.get(faultpoints.NAME)
    return os.getresuid(), os.getresgid(), tuple(os.getgroups()), sys.executable, *fixed


class Prepared:
    """A server that has built the dataset of one loader, from its payload."""

    def __init__(self, payload_fd: int, needs: Needs, is_closing: IsClosing) -> None:
        self._payload_fd, self._needs = payload_fd, needs
        self._is_closing = is_closing
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
        self._server, self._parent = shared.branch(self._needs, self._is_closing)
        try:
            self._server.prepare(self._needs.heritage, [self._payload_fd], self._is_closing)
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
