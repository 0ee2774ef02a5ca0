"""The fork server's side: a lean process that forks workers on request.

It has numpy loaded, and torch or dill where every worker will need them; nothing of the user's main module. It has
one thread, no state but its children, and ends with the trainer. A worker that it forks has all it needs in about
five milliseconds.

    prepare (a payload) -> built, or failure    the dataset is built here, and shared by those who are forked
    fork (name, channel, lifeline) -> pid, and its pidfd
    status (pid) -> the exit status of a child that is gone
    leave
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from swift_loader.errors import FailureReport
from swift_loader.pool import faultpoints, guard, messages, worker
from swift_loader.pool.channel import SocketChannel
from swift_loader.pool.payload import unpack
from swift_loader.pool.recipe import Recipe

PREPARE, FORK, STATUS, LEAVE, DONE, FAILED, REFUSED = range(1, 8)


def main(server_fd: int, lifeline_fd: int, modules: list[str]) -> None:
    """Runs in the process that the trainer started for this, and that has armed its lifeline."""
    for module in modules:
        importlib.import_module(module)
    Zygote(SocketChannel(socket.socket(fileno=server_fd), blocking=True), lifeline_fd, None).serve()


def main_forked(server: socket.socket, lifeline_fd: int, recipe: Recipe) -> None:
    """Runs in a copy of the trainer."""
    guard.arm(lifeline_fd, "swift-zygote")
    Zygote(SocketChannel(server, blocking=True), lifeline_fd, recipe).serve()


class Zygote:
    """Forks workers until the trainer goes."""

    def __init__(self, channel: SocketChannel, lifeline_fd: int, recipe: Recipe | None) -> None:
        self._channel = channel
        self._lifeline_fd = lifeline_fd
        self._recipe = recipe
        gc.disable()  # a collection here would copy pages that the workers share
        gc.freeze()

    def serve(self) -> None:
        """Until the trainer closes its end."""
        faultpoints.arm()
        answers: dict[int, Callable[[Any, list[int]], None]] = {
            PREPARE: self._prepare,
            FORK: self._fork,
            STATUS: self._status,
        }
        while True:
            received = self._channel.receive()
            if received is None or not received[0]:
                self._channel.close()
                return
            datagram, fds = received
            if datagram[0] == LEAVE:
                return
            answers[datagram[0]](messages.read_pickled(datagram), fds)

    def _prepare(self, path: list[str], fds: list[int]) -> None:
        sys.path[:] = path
        try:
            self._recipe = unpack(fds[0]).with_dataset()
        except Exception as error:  # noqa: BLE001 - user code: whatever it raised is told to the trainer
            self._answer(FAILED, FailureReport.of(error, "build the dataset"))
            return
        gc.freeze()
        self._answer(DONE, None)

    def _fork(self, name: str, fds: list[int]) -> None:
        channel_fd, lifeline_fd = fds
        _flush()
        try:
            pid = os.fork()
        except OSError as error:
            self._answer(REFUSED, error.errno)
            os.close(channel_fd)
            os.close(lifeline_fd)
            return
        if pid == 0:
            _become_worker(self, channel_fd, lifeline_fd, name)
        os.close(channel_fd)
        os.close(lifeline_fd)
        with contextlib.suppress(OSError):  # it does so itself; whoever is told of it may rely on it at once
            os.setpgid(pid, pid)
        # Not reaped before it is asked for, so the number cannot have been given to another process.
        pidfd = os.pidfd_open(pid)
        self._answer(DONE, pid, [pidfd])
        os.close(pidfd)

    def _status(self, pid: int, _fds: list[int]) -> None:
        _, status = os.waitpid(pid, 0)
        self._answer(DONE, status)

    def _answer(self, kind: int, value: Any, fds: list[int] | None = None) -> None:
        self._channel.send(messages.write_pickled(kind, value), fds or ())


def _become_worker(zygote: Zygote, channel_fd: int, lifeline_fd: int, name: str) -> None:
    status = 1
    try:
        zygote._channel.close()
        os.close(zygote._lifeline_fd)
        gc.enable()
        worker.run(channel_fd, lifeline_fd, name, zygote._recipe)
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing may return into the zygote's own loop
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(status & 0xFF)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def spawned(channel_fd: int, lifeline_fd: int, name: str) -> None:
    """The main function of a worker that was spawned."""
    worker.run(channel_fd, lifeline_fd, name, None)
