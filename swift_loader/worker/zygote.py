"""The side of the process that forks workers on request: a lean interpreter, or a copy of the trainer.

It has one thread, no state but its children and what it has loaded, and ends with the trainer. A worker that it forks
has all of that in about five milliseconds.

    load (names of modules) -> done, or spoiled  better once here than once in each worker
    prepare (heritage, payload) -> done          the dataset is built here, and shared by those who are forked
    fork (name, the dead, channel, lifeline) -> pid, and its pidfd
    branch (the same) -> the same               not a worker: another one like this, with all that this one has
    leave

Questions are numbered, and answers have the number of theirs: whoever asked may have stopped waiting. How a child has
ended the trainer reads from the kernel, for as long as the child is not waited for here. So the numbers of the dead
whose end is known come with the next question, and only then may they be given to other processes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from swift_loader.errors import FailureReport
from swift_loader.travel.heritage import Heritage
from swift_loader.travel.payload import unpack
from swift_loader.wire import messages
from swift_loader.wire.channel import SocketChannel
from swift_loader.wire.recipe import Recipe
from swift_loader.worker import faultpoints, guard, worker
from swift_loader.worker.copied import be_a_copy, have_ones_own
from swift_loader.worker.threads import Setter

#: None is the kind of a message between workers and consumers, at which tests may have a process die.
LOAD, PREPARE, FORK, BRANCH, LEAVE, DONE, FAILED, REFUSED = range(101, 109)

#: What becomes of a child: given its channel, its lifeline and its name, it never returns.
_Life = Callable[[int, int, str], None]


def main(server_fd: int, lifeline_fd: int, modules: list[str]) -> None:
    """Runs in the process that the trainer started for this, and that has armed its lifeline."""
    gc.disable()  # a collection here would copy pages that the workers share, and importing is quicker without
    _load(modules)
    Zygote(_channel(server_fd), lifeline_fd, None).serve()


def main_copied(server_fd: int, lifeline_fd: int, recipe: Recipe, setters: list[Setter]) -> None:
    """Runs in a copy of the trainer, in which signals are blocked."""
    gc.disable()
    be_a_copy((server_fd, lifeline_fd), setters)
    guard.arm(lifeline_fd, "swift-zygote")
    Zygote(_channel(server_fd), lifeline_fd, recipe).serve()


class Zygote:
    """Forks workers until the trainer goes."""

    def __init__(self, channel: SocketChannel, lifeline_fd: int, recipe: Recipe | None) -> None:
        self._channel = channel
        self._lifeline_fd = lifeline_fd
        self._recipe = recipe
        self._number = 0
        """Of the question that is being answered."""

    def serve(self) -> None:
        """Until the trainer closes its end."""
        gc.freeze()
        faultpoints.arm()
        answers: dict[int, Callable[[Any, list[int]], None]] = {
            LOAD: self._load, PREPARE: self._prepare, FORK: self._fork, BRANCH: self._branch,
        }  # fmt: skip
        while True:
            try:
                received = self._channel.receive()
            except OSError as error:  # there is no room for the descriptors that came along
                self._number = 0  # it was lost with the question
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
            self._number, question = messages.read_pickled(datagram)
            answers[datagram[0]](question, fds)

    def _load(self, question: tuple[list[str], Heritage | None], _fds: list[int]) -> None:
        """Tells whether one may still fork here: some libraries begin threads, which no child would have."""
        modules, heritage = question
        if heritage is not None:
            heritage.take_over()
        _load(modules)
        gc.freeze()
        self._answer(DONE, _thread_count() == 1)

    def _prepare(self, heritage: Heritage | None, fds: list[int]) -> None:
        """A copy of the trainer has the recipe, and needs no payload."""
        try:
            if heritage is not None:
                heritage.take_over()
            if fds:
                self._recipe = unpack(fds[0])
            assert self._recipe is not None
            self._recipe = self._recipe.with_dataset()
        except Exception as error:  # noqa: BLE001 - user code: whatever it raised is told to the trainer
            self._answer(FAILED, FailureReport.of(error, "build the dataset"))
            return
        gc.freeze()
        self._answer(DONE, None)

    def _fork(self, order: tuple[str, list[int]], fds: list[int]) -> None:
        self._bear(order, fds, self._become_worker)

    def _branch(self, order: tuple[str, list[int]], fds: list[int]) -> None:
        self._bear(order, fds, self._become_another)

    def _bear(self, order: tuple[str, list[int]], fds: list[int], life: _Life) -> None:
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
            self._live(life, channel_fd, lifeline_fd, name)
        os.close(channel_fd)
        os.close(lifeline_fd)
        with contextlib.suppress(OSError):  # it does so itself; whoever is told of it may rely on it at once
            os.setpgid(pid, pid)
        # Not waited for before the trainer says so: the number cannot have been given to another process.
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._answer(REFUSED, error.errno)
            return
        self._answer(DONE, pid, [pidfd])
        os.close(pidfd)

    def _live(self, life: _Life, channel_fd: int, lifeline_fd: int, name: str) -> NoReturn:
        """In the child. Nothing may return into the loop, whatever is raised."""
        with _whole_life():
            self._channel.close()
            os.close(self._lifeline_fd)
            life(channel_fd, lifeline_fd, name)
        raise AssertionError("that was its whole life")

    def _become_worker(self, channel_fd: int, lifeline_fd: int, name: str) -> None:
        gc.enable()
        if self._recipe is not None:
            have_ones_own()
        worker.run(channel_fd, lifeline_fd, name, self._recipe)

    def _become_another(self, channel_fd: int, lifeline_fd: int, name: str) -> None:
        guard.arm(lifeline_fd, name)
        Zygote(_channel(channel_fd), lifeline_fd, self._recipe).serve()

    def _answer(self, kind: int, value: Any, fds: list[int] | None = None) -> None:
        self._channel.send(messages.write_pickled(kind, (self._number, value)), fds or ())


def spawned(channel_fd: int, lifeline_fd: int, name: str) -> NoReturn:
    """The main function of a worker that was spawned."""
    with _whole_life():
        worker.run(channel_fd, lifeline_fd, name, None)
    raise AssertionError("that was its whole life")


@contextlib.contextmanager
def _whole_life() -> Any:
    """The process ends with it, without the interpreter's own end: that waits for the threads of the dataset."""
    status = 1
    try:
        yield
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


def _channel(fd: int) -> SocketChannel:
    return SocketChannel(socket.socket(fileno=fd), blocking=True)


def _load(modules: list[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):  # a worker that needs it will say so
            importlib.import_module(module)


def _thread_count() -> int:
    """Native ones too; one is believed where there is no /proc."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except FileNotFoundError:
        return 1


def _bury(dead: list[int]) -> None:
    """One that a debugger holds stays, until this process ends."""
    for pid in dead:
        with contextlib.suppress(ChildProcessError):  # it was a child of the server before
            os.waitpid(pid, os.WNOHANG)
