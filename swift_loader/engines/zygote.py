"""The fork server's side: a lean process that forks workers on request.

It has numpy loaded, and torch or cloudpickle where every worker will need them; nothing of the user's main module. It
has one thread, no state but its children, and ends with the trainer. A worker that it forks has all it needs in about
five milliseconds.

    prepare (a payload) -> built, or failure    the dataset is built here, and shared by those who are forked
    fork (name, the dead, channel, lifeline) -> pid, and its pidfd
    leave

How a child has ended the trainer reads from the kernel, for as long as the child is not waited for here. So the numbers
of the dead whose end is known come with the next question, and only then may they be given to other processes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from swift_loader.errors import FailureReport
from swift_loader.pool import faultpoints, guard, messages, worker
from swift_loader.pool.channel import SocketChannel
from swift_loader.pool.payload import unpack
from swift_loader.pool.recipe import Recipe

PREPARE, FORK, LEAVE, DONE, FAILED, REFUSED = range(1, 7)


def main(server_fd: int, lifeline_fd: int, modules: list[str]) -> None:
    """Runs in the process that the trainer started for this, and that has armed its lifeline."""
    for module in modules:
        importlib.import_module(module)
    Zygote(SocketChannel(socket.socket(fileno=server_fd), blocking=True), lifeline_fd, None).serve()


def main_forked(server: socket.socket, lifeline_fd: int, recipe: Recipe) -> None:
    """Runs in a copy of the trainer, in which signals are blocked."""
    guard.drop_what_is_the_trainers()
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
        answers: dict[int, Callable[[Any, list[int]], None]] = {PREPARE: self._prepare, FORK: self._fork}
        while True:
            try:
                received = self._channel.receive()
            except OSError as error:  # there is no room for the descriptors that came along
                self._answer(REFUSED, error.errno)
                continue
            if received is None or not received[0]:
                self._channel.close()
                return
            datagram, fds = received
            if datagram[0] == LEAVE:
                # Else whoever inherits them would have to, and the first process of a container often does not.
                _bury(messages.read_pickled(datagram))
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

    def _fork(self, order: tuple[str, list[int]], fds: list[int]) -> None:
        name, dead = order
        _bury(dead)
        channel_fd, lifeline_fd = fds
        guard.flush_streams()
        try:
            pid = os.fork()
        except OSError as error:
            self._answer(REFUSED, error.errno)
            os.close(channel_fd)
            os.close(lifeline_fd)
            return
        if pid == 0:
            self._become_worker(channel_fd, lifeline_fd, name)
        os.close(channel_fd)
        os.close(lifeline_fd)
        with contextlib.suppress(OSError):  # it does so itself; whoever is told of it may rely on it at once
            os.setpgid(pid, pid)
        # Not waited for before the trainer says so: the number cannot have been given to another process.
        pidfd = os.pidfd_open(pid)
        self._answer(DONE, pid, [pidfd])
        os.close(pidfd)

    def _become_worker(self, channel_fd: int, lifeline_fd: int, name: str) -> NoReturn:
        try:
            self._channel.close()
            os.close(self._lifeline_fd)
            gc.enable()
        finally:  # whatever that raised, nothing may return into the loop
            _work(channel_fd, lifeline_fd, name, self._recipe)

    def _answer(self, kind: int, value: Any, fds: list[int] | None = None) -> None:
        self._channel.send(messages.write_pickled(kind, value), fds or ())


def _bury(dead: list[int]) -> None:
    """One that a debugger holds stays, until this process ends."""
    for pid in dead:
        with contextlib.suppress(ChildProcessError):  # it was a child of the server before
            os.waitpid(pid, os.WNOHANG)


def spawned(channel_fd: int, lifeline_fd: int, name: str) -> NoReturn:
    """The main function of a worker that was spawned."""
    _work(channel_fd, lifeline_fd, name, None)


def _work(channel_fd: int, lifeline_fd: int, name: str, recipe: Recipe | None) -> NoReturn:
    """The process ends with it, without the interpreter's own end: that waits for the threads of the dataset."""
    status = 1
    try:
        worker.run(channel_fd, lifeline_fd, name, recipe)
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            sys.stderr.write(f"{leaving.code}\n")
    except BaseException:  # noqa: BLE001 - the process ends with it
        sys.excepthook(*sys.exc_info())
    finally:
        guard.flush_streams()
        os._exit(status & 0xFF)
