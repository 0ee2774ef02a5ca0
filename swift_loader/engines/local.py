"""Workers on this host, each tied to the trainer by a lifeline, in a process group with all that the dataset starts.

auto          forked from a copy of the trainer where that is harmless, else as with "forkserver"
forkserver    forked from a lean interpreter that all loaders of the process share
fork          forked from a copy of the trainer, or refused
spawn         each in an interpreter of its own
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Sequence

from swift_loader.engines import copied
from swift_loader.engines.interpreter import interpreter, pidfd_of, status_of
from swift_loader.engines.lifeline import Ends, Lifeline, ends, is_readable
from swift_loader.engines.nursery import Copies, Needs, Nursery, Prepared, shared
from swift_loader.engines.server import Server, ServerGone
from swift_loader.errors import ConfigError, LoaderClosed
from swift_loader.host.limits import refusals_told
from swift_loader.host.procfs import is_stopped, status_told
from swift_loader.pool.process import Process
from swift_loader.settings.arguments import StartMethod
from swift_loader.travel.payload import Packed, Unsendable, pack
from swift_loader.travel.preload import modules_to_preload
from swift_loader.wire import messages
from swift_loader.wire.channel import Channel
from swift_loader.wire.messages import Setup
from swift_loader.wire.recipe import Recipe
from swift_loader.wire.stacks import ASK
from swift_loader.worker import guard

#: The kernel ends a killed process at once, unless it waits in there.
_END_TIMEOUT_S = 1.0


class LocalEngine:
    """Starts the workers of one pool."""

    def __init__(self, recipe: Recipe, start_method: StartMethod) -> None:
        guard.have_standard_streams()
        self._recipe = recipe.for_worker()
        self._start_method = start_method
        self._payload_fd = -1
        self._needs = Needs()
        self._nursery: Nursery | None = None
        """What forks workers for this loader alone."""
        self._is_closed = False
        self._lock = threading.RLock()  # a signal handler may close the engine that this thread opens

    def open(self) -> None:
        """See `Engine`.

        Raises:
            ConfigError: if the dataset cannot be sent to workers, or they may not be forked.
            WorkerStartFailed: if the dataset is shared and cannot be built.
            LoaderClosed: if that is no longer waited for.
        """
        try:
            self._make_ready()
        finally:
            if self._is_closed:  # meanwhile
                self.close()

    def _make_ready(self) -> None:
        config = self._recipe.config
        _bury_those_left_behind()
        if self._start_method == "fork" and not config.allow_fork:
            _refuse_unsafe_fork()
        if self._start_method == "fork" or (self._start_method == "auto" and self._may_be_copied()):
            self._nursery = Copies(self._recipe, self._is_closing)
            return
        if self._start_method != "spawn":
            shared.begin(())
        packed = _packed(self._recipe)
        self._payload_fd = packed.fd
        self._needs.modules = modules_to_preload(packed)
        if config.share_dataset:
            with self._lock:
                self._nursery = Prepared(self._payload_fd, self._needs, self._is_closing)

    def _may_be_copied(self) -> bool:
        return copied.harm(holds_dataset=self._recipe.dataset is not None) is None

    def _is_closing(self) -> bool:
        return self._is_closed

    def launch(self, name: str, setup: Setup, fds: tuple[int, ...]) -> tuple[Process, Channel]:
        """See `Engine`.

        Raises:
            WorkerStartFailed: if the system refuses another process.
            LoaderClosed: if it is no longer waited for.
        """
        try:
            process, channel = self._launched(name)
        except ServerGone:
            # It was killed while it was asked. If it has forked a worker before, that one's lifeline was cut.
            process, channel = self._launched(name)
        sent = (*fds, self._payload_fd) if self.sends_payload else fds
        try:
            with refusals_told(), contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its sentinel tells
                channel.send(messages.write_pickled(messages.SETUP, setup), sent)
        except BaseException:  # it would wait for ever
            channel.close()
            _end(process)
            raise
        return process, channel

    @property
    def sends_payload(self) -> bool:
        """Whether workers are given a payload; else they were forked with what it says."""
        return self._nursery is None

    def will_need(self, libraries: Sequence[str]) -> None:
        """See `Engine`."""
        if self._nursery is not None and libraries:
            self._nursery.will_need(libraries)
        elif libraries:
            self._needs.modules = [*self._needs.modules, *libraries]

    def abandon(self) -> None:
        """See `Engine`."""
        self._is_closed = True

    def close(self) -> None:
        """See `Engine`."""
        self.abandon()
        with self._lock:
            nursery, self._nursery = self._nursery, None
            payload_fd, self._payload_fd = self._payload_fd, -1
        if nursery is not None:
            nursery.close()
        if payload_fd >= 0:
            os.close(payload_fd)

    def _launched(self, name: str) -> tuple[Process, Channel]:
        with ends() as made:
            return self._process(name, made), made.ours

    def _process(self, name: str, made: Ends) -> Process:
        if self._start_method == "spawn":
            return _Spawned(interpreter(f"zygote.spawned({{}}, {{}}, {name!r})", made.fds, name), made.lifeline)
        with self._lock:
            if self._is_closed:
                raise LoaderClosed("the loader was closed while it started a worker")
            pid, sentinel, server = self._forked(name, made)
        return _Forked(pid, sentinel, made.lifeline, server)

    def _forked(self, name: str, made: Ends) -> tuple[int, int, Server]:
        if self._nursery is not None:
            return self._nursery.fork(name, made.fds)
        return shared.fork(name, made.fds, self._needs, self._is_closing)


class _Child:
    """A worker on this host."""

    def __init__(self, pid: int, sentinel: int, lifeline: Lifeline) -> None:
        self.pid = pid
        self.sentinel = sentinel
        self._lifeline = lifeline

    def kill(self) -> None:
        """See `Process`."""
        try:
            signal.pidfd_send_signal(self.sentinel, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:  # the trainer has given up rights since; the lifeline needs none
            self._lifeline.cut()

    def cut(self) -> None:
        """See `Process`."""
        self._lifeline.cut()

    def ask(self) -> None:
        """See `Process`."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self.sentinel, ASK)

    def is_stopped(self) -> bool:
        """See `Process`."""
        return is_stopped(self.pid)

    def close(self) -> None:
        """See `Process`."""
        self._lifeline.cut()
        os.close(self.sentinel)


class _Forked(_Child):
    """A child of what workers are forked from, which keeps its number until it is told that its end is known."""

    def __init__(self, pid: int, sentinel: int, lifeline: Lifeline, server: Server) -> None:
        super().__init__(pid, sentinel, lifeline)
        self._server = server
        self._status: int | None = None

    def exit_status(self) -> int | None:
        """See `Process`. The server is not asked: it may be stopped, or build a dataset again."""
        if self._status is None:
            # Where the trainer is the first process of a container, it inherits workers whose server has died.
            status = status_of(self.sentinel)
            self._status = status_told(self.pid) if status is None else status
            self._server.bury(self.pid)
        return self._status


class _Spawned(_Child):
    """A child of the trainer."""

    def __init__(self, pid: int, lifeline: Lifeline) -> None:
        super().__init__(pid, pidfd_of(pid), lifeline)

    def exit_status(self) -> int | None:
        """See `Process`."""
        return status_of(self.sentinel)

    def close(self) -> None:
        """See `Process`."""
        self._lifeline.cut()
        if is_readable(self.sentinel, 0.0):
            os.close(self.sentinel)
        else:  # it cannot be ended now
            _left_behind.append(self)


#: Killed children of the trainer that wait in the kernel. The next loader that is started lets go of their numbers.
_left_behind: list[_Spawned] = []


def _bury_those_left_behind() -> None:
    for _ in range(len(_left_behind)):
        child = _left_behind.pop(0)
        child.exit_status()
        child.close()


def _end(process: Process) -> None:
    process.kill()
    is_readable(process.sentinel, _END_TIMEOUT_S)
    process.exit_status()  # whoever started it may let go of its number now
    process.close()


def _packed(recipe: Recipe) -> Packed:
    try:
        return pack(recipe)
    except Unsendable as error:
        raise ConfigError(
            f"the dataset cannot be sent to worker processes: {error}. Give dataset_class and dataset_kwargs that can "
            "be pickled, and open connections in the dataset's __init__ or at first use; or use start_method='fork', "
            "which sends nothing, with allow_fork=True where threads run (a second loader's, a progress bar's)"
        ) from error.__cause__


def _refuse_unsafe_fork() -> None:
    if accelerator := copied.accelerator_in_use():
        raise ConfigError(
            f"start_method='fork' after CUDA was initialised ({accelerator}) breaks CUDA in the children: start the "
            "loader first, leave start_method out, or set allow_fork=True if no worker will ever touch CUDA"
        )
    if others := copied.others_told(copied.other_threads()):
        raise ConfigError(
            f"start_method='fork' while {others} can copy a lock that nobody will ever open: start the loader before "
            "them, leave start_method out, or set allow_fork=True if you know that they hold none"
        )
