"""Workers on this host: forked from a lean server ("forkserver"), from the trainer ("fork"), or spawned.

A worker's lifeline is a pipe whose only write end is the trainer's: when that closes, for whatever reason, the kernel
kills the worker. So the write ends must stay with the trainer: they are closed on exec, and in children that the
trainer forks.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_loader.config import StartMethod
from swift_loader.engines import zygote
from swift_loader.errors import ConfigError, FailureReport, WorkerStartFailed
from swift_loader.pool import messages
from swift_loader.pool.channel import Channel, SocketChannel
from swift_loader.pool.guard import THREAD_CAPS
from swift_loader.pool.payload import Unsendable, modules_to_preload, pack
from swift_loader.pool.process import Process
from swift_loader.pool.recipe import Recipe
from swift_loader.pool.stacks import ASK
from swift_loader.pool.worker import Setup

#: A server that loads torch over a slow network file system may take this long to answer, and no longer.
_ANSWER_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 2.0

_lifelines: set[int] = set()


def _forget_lifelines() -> None:
    for fd in _lifelines:
        with contextlib.suppress(OSError):
            os.close(fd)
    _lifelines.clear()


os.register_at_fork(after_in_child=_forget_lifelines)


class LocalEngine:
    """Starts the workers of one pool."""

    def __init__(self, recipe: Recipe, start_method: StartMethod) -> None:
        self._recipe = recipe.for_worker()
        self._start_method = start_method
        self._payload_fd = -1
        self._modules: list[str] = []
        self._server: _Server | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """See `Engine`.

        Raises:
            ConfigError: if the dataset cannot be sent to workers.
            WorkerStartFailed: if the dataset is shared and cannot be built.
        """
        if self._start_method == "fork":
            _refuse_unsafe_fork()
            self._server = _Server.forked(_built(self._recipe) if self._recipe.config.share_dataset else self._recipe)
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
        with _ends() as ends:
            process = self._process(name, ends)
        sent = fds if self._server_has_recipe() else (*fds, self._payload_fd)
        with contextlib.suppress(OSError):  # it has died already: its sentinel tells
            ends.ours.send(messages.write_pickled(messages.SETUP, setup), sent)
        return process, ends.ours

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

    def _process(self, name: str, ends: _Ends) -> Process:
        if self._start_method == "spawn":
            return _Spawned(_python(f"zygote.spawned(*{ends.fds}, {name!r})", ends.fds), ends.lifeline)
        with self._lock:
            if self._server is None or not self._server.alive():
                if self._start_method == "fork":
                    raise WorkerStartFailed(
                        "the process that workers are forked from has died; it cannot be made again"
                    )
                self._start_server()
            assert self._server is not None
            pid, fds = self._server.ask(zygote.FORK, name, ends.fds)
            return _Forked(pid, fds[0], ends.lifeline, self, self._server)

    def _start_server(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = _Server.started(self._modules)
        if self._recipe.config.share_dataset:
            self._server.ask(zygote.PREPARE, sys.path, [self._payload_fd])

    def _server_has_recipe(self) -> bool:
        return self._start_method == "fork" or self._recipe.config.share_dataset

    def _status_of(self, pid: int, parent: _Server) -> int | None:
        with self._lock, contextlib.suppress(WorkerStartFailed):
            # A server that was started since knows nothing of the children of the one before.
            if self._server is not None and self._server is parent:
                status, _ = self._server.ask(zygote.STATUS, pid)
                return os.waitstatus_to_exitcode(status)
        return None


class _Server:
    """The trainer's side of a fork server."""

    def __init__(self, pid: int, channel: SocketChannel, lifeline: int) -> None:
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._channel = channel
        self._lifeline = lifeline
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    @classmethod
    def started(cls, modules: list[str]) -> _Server:
        """A server in an interpreter of its own, without the user's main module."""
        with _ends() as ends:
            pid = _python(f"zygote.main(*{ends.fds}, {modules!r})", ends.fds)
            return cls(pid, ends.ours, ends.lifeline)

    @classmethod
    def forked(cls, recipe: Recipe) -> _Server:
        """A server that is a copy of this process, dataset and all."""
        with _ends() as ends:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    ends.ours.close()
                    zygote.Zygote(SocketChannel(ends.theirs, blocking=True), ends.alive, recipe).serve()
                    status = 0
                finally:
                    os._exit(status)
            return cls(pid, ends.ours, ends.lifeline)

    def alive(self) -> bool:
        """Whether it still runs."""
        return not _is_readable(self._pidfd, 0.0)

    def ask(self, kind: int, value: Any, fds: Sequence[int] = ()) -> tuple[Any, list[int]]:
        """One question, one answer."""
        try:
            self._channel.send(messages.write_pickled(kind, value), fds)
            answered = self._poll.poll(_ANSWER_TIMEOUT_S * 1000)
            received = self._channel.receive() if answered else None
        except OSError:
            received = (b"", [])
        if received is None:
            raise WorkerStartFailed(f"the fork server did not answer within {_ANSWER_TIMEOUT_S:.0f} s")
        datagram, answer_fds = received
        if not datagram:
            raise WorkerStartFailed("the fork server died; what it wrote to standard error tells why")
        answer = messages.read_pickled(datagram)
        if datagram[0] == zygote.FAILED:
            report: FailureReport = answer
            raise WorkerStartFailed(
                f"could not {report.stage}: {report.type_name}: {report.text}"
            ) from report.exception()
        return answer, answer_fds

    def close(self) -> None:
        """Ends it: it leaves by itself when the channel closes, and is killed if it does not."""
        self._channel.close()
        if not _is_readable(self._pidfd, _END_TIMEOUT_S):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        _cut(self._lifeline)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        os.close(self._pidfd)


class _Child:
    """A worker on this host."""

    def __init__(self, pid: int, sentinel: int, lifeline: int) -> None:
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
        _cut(self._lifeline)
        os.close(self.sentinel)


class _Forked(_Child):
    """A child of the fork server, which alone can tell how it ended."""

    def __init__(self, pid: int, sentinel: int, lifeline: int, engine: LocalEngine, server: _Server) -> None:
        super().__init__(pid, sentinel, lifeline)
        self._engine, self._server = engine, server

    def exit_status(self) -> int | None:
        """See `Process`."""
        return self._engine._status_of(self.pid, self._server)


class _Spawned(_Child):
    """A child of the trainer."""

    def __init__(self, pid: int, lifeline: int) -> None:
        super().__init__(pid, os.pidfd_open(pid), lifeline)

    def exit_status(self) -> int | None:
        """See `Process`."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # somebody else in the trainer waits for every child
            return None


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
            "start_method='fork' after CUDA was initialised breaks CUDA in the children: start the loader first, or "
            "use start_method='forkserver'"
        )
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        raise ConfigError(
            f"start_method='fork' while threads run ({', '.join(others)}) can copy a lock that nobody will ever open: "
            "start the loader before them, or use start_method='forkserver'"
        )


def _python(code: str, fds: list[int]) -> int:
    """Starts an interpreter that runs ``code``; gives back its pid."""
    prelude = f"import sys; sys.path[:] = {sys.path!r}; from swift_loader.engines import zygote; "
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", prelude + code],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            env={**os.environ, **THREAD_CAPS},
        )
    except OSError as error:
        raise WorkerStartFailed(f"cannot start a process: {error}") from error
    child.returncode = 0  # its end is waited for by pid, so subprocess must not warn that nobody did
    return child.pid


@dataclass(frozen=True, slots=True)
class _Ends:
    """What connects this process and a child: a channel, and the child's lifeline."""

    ours: SocketChannel
    theirs: socket.socket
    alive: int
    lifeline: int

    @property
    def fds(self) -> list[int]:
        """The child's ends."""
        return [self.theirs.fileno(), self.alive]


@contextlib.contextmanager
def _ends() -> Iterator[_Ends]:
    """Makes the ends; the child's are closed here afterwards, and ours too if there is no child."""
    ours, theirs = SocketChannel.pair()
    alive, lifeline = os.pipe2(os.O_CLOEXEC)
    _lifelines.add(lifeline)
    try:
        yield _Ends(ours, theirs, alive, lifeline)
    except BaseException:
        ours.close()
        _cut(lifeline)
        raise
    finally:
        theirs.close()
        os.close(alive)


def _cut(lifeline: int) -> None:
    _lifelines.discard(lifeline)
    os.close(lifeline)


def _is_readable(fd: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
