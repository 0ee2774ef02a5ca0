"""The trainer's side of a process that forks workers."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from swift_loader.engines import copied
from swift_loader.engines.interpreter import interpreter, pidfd_of, status_of, undo
from swift_loader.engines.lifeline import Ends, Lifeline, ends, is_readable
from swift_loader.errors import FailureReport, LoaderClosed, NoRoom, WorkerStartFailed
from swift_loader.host.limits import refusals_told, why_no_process
from swift_loader.host.procfs import is_dead_child, is_stopped
from swift_loader.pool.policy import STOPPED_S
from swift_loader.travel.heritage import Heritage
from swift_loader.wire import messages
from swift_loader.wire.channel import SocketChannel
from swift_loader.wire.recipe import Recipe
from swift_loader.worker import guard, threads, zygote

#: How long an answer may take. Before it forks for the first time a server may load torch over a slow network file
#: system. How long it takes to build a dataset only the user knows.
_LIMITS_S = {zygote.LOAD: 120.0, zygote.PREPARE: math.inf, zygote.FORK: 120.0, zygote.BRANCH: 120.0}
#: An answer is waited for in pieces of this length, and time is counted in them: while the whole job is stopped, no
#: server is late.
_LOOK_S = 0.25
_END_TIMEOUT_S = 1.0

#: Whether whoever asks has stopped waiting.
IsClosing = Callable[[], bool]


class Server:
    """A process that forks workers on request, and has all that they need."""

    is_unique = False
    """There can be no other one: it is waited for while it is stopped."""

    def __init__(self, pid: int, pidfd: int, channel: SocketChannel, lifeline: Lifeline) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._channel = channel
        self._lifeline = lifeline
        self._asked = 0
        """The number of the last question."""
        self._awaited: set[int] = set()
        """Those whose answers somebody waits for: mostly one, but a signal handler may ask in the middle of another."""
        self._answers: dict[int, tuple[int, Any, list[int]]] = {}
        self._dead: deque[int] = deque()
        """Workers of it that it need not keep the numbers of any more."""
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        self._poll.register(pidfd, select.POLLIN)

    @classmethod
    def started(cls, modules: Sequence[str] = ()) -> Server:
        """One in an interpreter of its own, without the user's main module; what it loads is not waited for here."""
        with ends() as made:
            return cls._of_child(
                interpreter(f"zygote.main({{}}, {{}}, {list(modules)!r})", made.fds, "swift-zygote"), made
            )

    @classmethod
    def copied(cls, recipe: Recipe) -> Server:
        """One that is a copy of this process, with its dataset and all."""
        guard.flush_streams()
        with ends() as made:
            return cls._of_child(_forked(made, recipe), made)

    @classmethod
    def _of_child(cls, pid: int, made: Ends) -> Server:
        made.theirs.close()  # the child has it, and here is room for one descriptor more
        try:
            return cls(pid, pidfd_of(pid), made.ours, made.lifeline)
        except BaseException:
            undo(pid)
            raise

    def branch(self, is_closing: IsClosing) -> Server:
        """Another one, that has all that this one has."""
        with ends() as made:
            pid, pidfd = self._have_child(zygote.BRANCH, "swift-zygote", made.fds, is_closing)
            return Server(pid, pidfd, made.ours, made.lifeline)

    def fork(self, name: str, fds: Sequence[int], is_closing: IsClosing) -> tuple[int, int]:
        """Has it fork a worker; gives back its pid and a pidfd. Raises as `ask` does."""
        return self._have_child(zygote.FORK, name, fds, is_closing)

    def load(self, modules: Sequence[str], heritage: Heritage | None, is_closing: IsClosing) -> None:
        """Has it load what its workers will need, as they would find it.

        Raises:
            ServerSpoiled: if nothing should be forked from it any more.
        """
        is_well, _ = self.ask(zygote.LOAD, (list(modules), heritage), (), is_closing)
        if not is_well:
            raise ServerSpoiled("a library that the fork server has loaded began threads there")

    def prepare(self, heritage: Heritage | None, payload_fds: Sequence[int], is_closing: IsClosing) -> None:
        """Has it build the dataset of the payload, or of the recipe that it has."""
        self.ask(zygote.PREPARE, heritage, payload_fds, is_closing)

    @property
    def fds(self) -> set[int]:
        """What this process holds for it."""
        return {self._pidfd, self._channel.fileno(), *self._lifeline.fds}

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended."""
        return self._pidfd < 0 or is_readable(self._pidfd, 0.0)

    def bury(self, pid: int) -> None:
        """It need not keep a child's number any more; called from any thread, and waits for nothing."""
        self._dead.append(pid)

    def _have_child(self, kind: int, name: str, fds: Sequence[int], is_closing: IsClosing) -> tuple[int, int]:
        dead = list(self._dead)
        pid, (pidfd,) = self.ask(kind, (name, dead), fds, is_closing)
        for buried in dead:
            with contextlib.suppress(ValueError):  # told by a signal handler that asked in between
                self._dead.remove(buried)
        return pid, pidfd

    def ask(self, kind: int, value: Any, fds: Sequence[int], is_closing: IsClosing) -> tuple[Any, list[int]]:
        """One question, one answer.

        Raises:
            ServerGone: if it dies instead, or is late and is killed. It is to be closed.
            LoaderClosed: if it is not waited for any more. What it answers later is of no interest to anybody.
            WorkerStartFailed: if it cannot do what it is asked.
        """
        number = self._asked = self._asked + 1
        self._awaited.add(number)
        try:
            brings_one = kind in (zygote.FORK, zygote.BRANCH)
            with refusals_told(), _room_beside(self._pidfd) if brings_one else contextlib.nullcontext():
                self._say(messages.write_pickled(kind, (number, value)), fds)
                self._wait(_LIMITS_S[kind], is_closing)
            return _said(*self._answer(number, _LIMITS_S[kind], is_closing))
        finally:
            self._awaited.discard(number)
            for fd in self._answers.pop(number, (0, None, []))[2]:
                os.close(fd)

    def _say(self, datagram: bytes, fds: Sequence[int]) -> None:
        try:
            is_sent = self._channel.send(datagram, fds)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ServerGone(_DIED) from error
        if not is_sent:
            raise ServerGone("the process that workers are forked from takes no more questions, and was killed")

    def _answer(self, number: int, limit_s: float, is_closing: IsClosing) -> tuple[int, Any, list[int]]:
        while number not in self._answers:
            self._wait(limit_s, is_closing)  # no longer than until the first has come
            with refusals_told():
                datagram, fds = self._channel.receive() or (b"", [])
            if not datagram:
                raise ServerGone(_DIED)
            of, answer = messages.read_pickled(datagram)
            of = of or number  # it had no room for the question's descriptors, nor so for its number
            if of in self._awaited:
                self._answers[of] = datagram[0], answer, fds
            elif fds:  # whoever asked for it has stopped waiting, and cut its lifeline
                os.close(fds[0])
                self.bury(answer)
        return self._answers.pop(number)

    def _wait(self, limit_s: float, is_closing: IsClosing) -> None:
        """Until it has answered or died. One that is stopped is killed, if there can be another."""
        waited_s = stopped_s = 0.0
        while not self._poll.poll(_LOOK_S * 1000):
            waited_s += _LOOK_S
            if is_closing():
                raise LoaderClosed("the loader was closed while it started a worker")
            stopped_s = stopped_s + _LOOK_S if is_stopped(self.pid) else 0.0
            if stopped_s > STOPPED_S and not self.is_unique:
                raise ServerGone("what workers are forked from was stopped (SIGSTOP, or a debugger), and was killed")
            if waited_s >= limit_s:
                raise ServerGone(f"what workers are forked from did not answer within {limit_s:g} s, and was killed")

    def close(self) -> None:
        """Asks it to leave, and kills it if it does not, with all that it has started."""
        # Not by closing alone: a child that the trainer has forked may hold the channel open.
        with contextlib.suppress(OSError):
            self._channel.send(messages.write_pickled(zygote.LEAVE, list(self._dead)))
        is_readable(self._pidfd, _END_TIMEOUT_S)
        self.end()

    def end(self) -> None:
        """Kills it at once; may be called twice."""
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd < 0:
            return
        self._lifeline.cut()
        # Itself too, though it has not tied itself to the lifeline yet. Whoever has given up rights may not.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        is_readable(pidfd, _END_TIMEOUT_S)
        status_of(pidfd)
        os.close(pidfd)
        # Where the trainer is the first process of a container, it inherits what the server has not waited for.
        self._bury_the_unknown()
        self._channel.close()
        for pid in filter(is_dead_child, list(self._dead)):
            with contextlib.suppress(ChildProcessError):  # somebody else in the trainer waits for every child
                os.waitpid(pid, os.WNOHANG)

    def _bury_the_unknown(self) -> None:
        """Children that it was asked for by somebody who then stopped waiting, and cut their lifelines."""
        with contextlib.suppress(OSError, NoRoom):
            while (received := self._channel.receive()) is not None and received[0]:
                for fd in received[1]:
                    is_readable(fd, _END_TIMEOUT_S)
                    status_of(fd)
                    os.close(fd)

    def let_go(self) -> None:
        """In a child of the trainer, which has nothing to do with it: lets go of its descriptors."""
        self._channel.close()
        os.close(self._pidfd)
        self._pidfd = -1


def _said(kind: int, answer: Any, fds: list[int]) -> tuple[Any, list[int]]:
    if kind == zygote.REFUSED:
        raise WorkerStartFailed(why_no_process(answer))
    if kind == zygote.FAILED:
        report: FailureReport = answer
        raise WorkerStartFailed(f"could not {report.stage}: {report.type_name}: {report.text}") from report.exception()
    return answer, fds


class ServerGone(WorkerStartFailed):
    """The fork server is not there any more: another one may be started."""


class ServerSpoiled(ServerGone):
    """It is there, but what it was last asked to load is not to be loaded where workers are forked from."""


_DIED = "the process that workers are forked from died; what it wrote to standard error tells why"


@contextlib.contextmanager
def _room_beside(fd: int) -> Iterator[None]:
    """There is room for one descriptor afterwards: if there is none, this fails while nothing was done yet."""
    room = os.dup(fd)
    try:
        yield
    finally:
        os.close(room)


def _forked(made: Ends, recipe: Recipe) -> int:
    pid, setters = 0, threads.setters()
    try:
        with copied.quiet(), refusals_told():
            pid = os.fork()
            if pid == 0:
                _be_server(made, recipe, setters)
    except BaseException:  # what a signal's handler has raised, now that it may run
        undo(pid)
        raise
    return pid


def _be_server(made: Ends, recipe: Recipe, setters: list[threads.Setter]) -> None:
    """The whole life of a server that is a copy."""
    status = 1
    try:
        made.ours.close()
        zygote.main_copied(made.theirs.detach(), made.lifeline.alive, recipe, setters)
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the trainer's frames
        sys.excepthook(*sys.exc_info())
    finally:
        guard.flush_streams()
        os._exit(status)
