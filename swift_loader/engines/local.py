"""Workers on this host: forked from a lean server ("forkserver"), from the trainer ("fork"), or spawned.

Each is tied to the trainer by a lifeline, and lives in a process group of its own with all that the dataset starts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

from swift_loader.config import StartMethod
from swift_loader.engines import zygote
from swift_loader.engines.lifeline import Ends, Lifeline, ends, is_readable
from swift_loader.engines.server import Server, ServerGone, interpreter, pidfd_of, status_of
from swift_loader.errors import ConfigError, WorkerStartFailed
from swift_loader.pool import guard, messages
from swift_loader.pool.channel import Channel
from swift_loader.pool.payload import Unsendable, modules_to_preload, pack
from swift_loader.pool.process import Process
from swift_loader.pool.recipe import Recipe
from swift_loader.pool.stacks import ASK
from swift_loader.pool.worker import Setup


class LocalEngine:
    """Starts the workers of one pool."""

    def __init__(self, recipe: Recipe, start_method: StartMethod) -> None:
        guard.have_standard_streams()
        self._recipe = recipe.for_worker()
        self._start_method = start_method
        self._payload_fd = -1
        self._modules: list[str] = []
        self._server: Server | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """See `Engine`.

        Raises:
            ConfigError: if the dataset cannot be sent to workers.
            WorkerStartFailed: if the dataset is shared and cannot be built.
        """
        config = self._recipe.config
        _bury_those_left_behind()
        if self._start_method == "fork":
            if not config.allow_fork:
                _refuse_unsafe_fork()
            self._server = Server.forked(_built(self._recipe) if config.share_dataset else self._recipe)
            return
        self._payload_fd, needs_dill = _packed(self._recipe)
        dataset_class = self._recipe.dataset_class or type(self._recipe.dataset)
        if isinstance(dataset_class, type):
            self._modules = modules_to_preload(dataset_class, self._payload_fd, needs_dill=needs_dill)
        if self._start_method == "forkserver":
            self._start_server()

    def launch(self, name: str, setup: Setup, fds: tuple[int, int]) -> tuple[Process, Channel]:
        """See `Engine`.

        Raises:
            WorkerStartFailed: if the system refuses another process.
        """
        try:
            process, channel = self._launched(name)
        except ServerGone:
            # It was killed while it was asked. If it has forked a worker before, that one's lifeline was cut.
            process, channel = self._launched(name)
        sent = fds if self._server_has_recipe() else (*fds, self._payload_fd)
        with contextlib.suppress(OSError):  # it has died already: its sentinel tells
            channel.send(messages.write_pickled(messages.SETUP, setup), sent)
        return process, channel

    @property
    def sends_payload(self) -> bool:
        """Whether workers are given a payload; else they were forked with what it says."""
        return not self._server_has_recipe()

    def close(self) -> None:
        """See `Engine`."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None
        if self._payload_fd >= 0:
            os.close(self._payload_fd)
            self._payload_fd = -1

    def _launched(self, name: str) -> tuple[Process, Channel]:
        with ends() as made:
            return self._process(name, made), made.ours

    def _process(self, name: str, made: Ends) -> Process:
        if self._start_method == "spawn":
            return _Spawned(interpreter(f"zygote.spawned({{}}, {{}}, {name!r})", made.fds, name), made.lifeline)
        with self._lock:
            if self._server is None or not self._server.alive():
                if self._start_method == "fork":
                    raise WorkerStartFailed(
                        "the process that workers are forked from has died; it cannot be made again"
                    )
                self._start_server()
            assert self._server is not None
            pid, fds = self._server.ask(zygote.FORK, name, made.fds)
            return _Forked(pid, fds[0], made.lifeline, self, self._server)

    def _start_server(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = Server.started(self._modules)
        if self._recipe.config.share_dataset:
            self._server.ask(zygote.PREPARE, sys.path, [self._payload_fd])

    def _server_has_recipe(self) -> bool:
        return self._start_method == "fork" or self._recipe.config.share_dataset

    def _status_of(self, pid: int, pidfd: int, parent: Server) -> int | None:
        with self._lock, contextlib.suppress(WorkerStartFailed):
            # A server that was started since knows nothing of the children of the one before.
            if self._server is not None and self._server is parent:
                status, _ = self._server.ask(zygote.STATUS, pid)
                return os.waitstatus_to_exitcode(status)
        return status_of(pidfd)  # where the trainer is the first process of a container, it inherits them


class _Child:
    """A worker on this host."""

    def __init__(self, pid: int, sentinel: int, lifeline: Lifeline) -> None:
        self.pid = pid
        self.sentinel = sentinel
        self._lifeline = lifeline

    def kill(self) -> None:
        """See `Process`."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.sentinel, signal.SIGKILL)

    def ask(self) -> None:
        """See `Process`."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.sentinel, ASK)

    def is_stopped(self) -> bool:
        """See `Process`."""
        try:  # the number is not another's: nobody has waited for it yet
            fields = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return fields[fields.rindex(b")") + 2 :][:1] in b"Tt"

    def close(self) -> None:
        """See `Process`."""
        self._lifeline.cut()
        os.close(self.sentinel)


class _Forked(_Child):
    """A child of the fork server, which alone can tell how it ended."""

    def __init__(self, pid: int, sentinel: int, lifeline: Lifeline, engine: LocalEngine, server: Server) -> None:
        super().__init__(pid, sentinel, lifeline)
        self._engine, self._server = engine, server

    def exit_status(self) -> int | None:
        """See `Process`."""
        return self._engine._status_of(self.pid, self.sentinel, self._server)


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


def _packed(recipe: Recipe) -> tuple[int, bool]:
    try:
        return pack(recipe)
    except Unsendable as error:
        raise ConfigError(
            f"the dataset cannot be sent to worker processes: {error}. Give dataset_class and dataset_kwargs that can "
            "be pickled and open files, locks and connections in the dataset's __init__ or at first use; or use "
            "start_method='fork', which sends nothing"
        ) from error.__cause__


def _built(recipe: Recipe) -> Recipe:
    try:
        return recipe.with_dataset()
    except Exception as error:
        raise WorkerStartFailed(f"could not build the dataset: {type(error).__name__}: {error}") from error


def _refuse_unsafe_fork() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise ConfigError(
            "start_method='fork' after CUDA was initialised breaks CUDA in the children: start the loader first, use "
            "start_method='forkserver', or set allow_fork=True if no worker will ever touch CUDA"
        )
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        raise ConfigError(
            f"start_method='fork' while threads run ({', '.join(others)}) can copy a lock that nobody will ever open: "
            "start the loader before them, use start_method='forkserver', or set allow_fork=True if you know that they "
            "hold none"
        )
