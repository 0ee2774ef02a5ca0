"""The trainer's side of a fork server, and how an interpreter is started, for a server or a worker of its own."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from swift_loader.engines import zygote
from swift_loader.engines.lifeline import Ends, ends, is_readable
from swift_loader.engines.procfs import is_dead_child, is_stopped
from swift_loader.errors import FailureReport, LoaderClosed, WorkerStartFailed
from swift_loader.pool import guard, messages
from swift_loader.pool.limits import refusals_told, why_no_process
from swift_loader.pool.policy import STOPPED_S
from swift_loader.pool.recipe import Recipe
from swift_loader.pool.script_settings import ScriptSettings

#: How long an answer may take. Before it forks for the first time a server may load torch over a slow network file
#: system. How long it takes to build a dataset only the user knows.
_LIMITS_S = {zygote.PREPARE: math.inf, zygote.FORK: 120.0}
#: An answer is waited for in pieces of this length, and time is counted in them: while the whole job is stopped, no
#: server is late.
_LOOK_S = 0.25
_END_TIMEOUT_S = 1.0


class Server:
    """A process that forks workers on request, and has all that they need."""

    def __init__(self, pid: int, made: Ends, is_closing: Callable[[], bool]) -> None:
        made.theirs.close()  # the child has it, and here is room for one descriptor more
        self._pid = pid
        self._pidfd = pidfd_of(pid)
        self._channel = made.ours
        self._lifeline = made.lifeline
        self._is_closing = is_closing
        self._is_unique = False
        """There can be no other one: it is waited for while it is stopped."""
        self._dead: deque[int] = deque()
        """Workers of it that it need not keep the numbers of any more."""
        self._poll = select.poll()
        self._poll.register(self._channel.fileno(), select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)

    @classmethod
    def started(
        cls, modules: list[str], payload_fd: int | None, script: ScriptSettings, is_closing: Callable[[], bool]
    ) -> Server:
        """One in an interpreter of its own, without the user's main module; it builds the dataset of the payload."""
        with ends() as made:
            pid = interpreter(f"zygote.main({{}}, {{}}, {modules!r})", made.fds, "swift-zygote")
            server = cls(pid, made, is_closing)
            try:
                if payload_fd is not None:
                    server.ask(zygote.PREPARE, (sys.path, script), [payload_fd])
            except BaseException:
                server.close()
                raise
            return server

    @classmethod
    def forked(cls, recipe: Recipe, is_closing: Callable[[], bool]) -> Server:
        """One that is a copy of this process, dataset and all."""
        guard.flush_streams()
        with ends() as made:
            # What the user has set up for signals must not run in the child.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                with refusals_told():
                    pid = os.fork()
                if pid == 0:
                    _be_server(made, recipe)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            server = cls(pid, made, is_closing)
            server._is_unique = True
            return server

    def fork(self, name: str, fds: Sequence[int]) -> tuple[int, int]:
        """Has it fork a worker; gives back its pid and a pidfd. Raises as `ask` does."""
        dead = list(self._dead)
        pid, (pidfd,) = self.ask(zygote.FORK, (name, dead), fds)
        for _ in dead:
            self._dead.popleft()
        return pid, pidfd

    def bury(self, pid: int) -> None:
        """It need not keep a worker's number any more; called from any thread, and waits for nothing."""
        self._dead.append(pid)

    def ask(self, kind: int, value: Any, fds: Sequence[int] = ()) -> tuple[Any, list[int]]:
        """One question, one answer.

        Raises:
            ServerGone: if it dies instead, or is late and is killed. It is to be closed.
            LoaderClosed: if it is not waited for any more. It is to be closed too.
            WorkerStartFailed: if it cannot do what it is asked.
        """
        brings_one = kind == zygote.FORK
        with refusals_told(), _room_beside(self._pidfd) if brings_one else contextlib.nullcontext():
            try:
                self._channel.send(messages.write_pickled(kind, value), fds)
            except (BrokenPipeError, ConnectionResetError) as error:
                raise ServerGone(_DIED) from error
            self._wait(_LIMITS_S[kind])
        with refusals_told():
            datagram, answer_fds = self._channel.receive() or (b"", [])
        if not datagram:
            raise ServerGone(_DIED)
        answer = messages.read_pickled(datagram)
        if datagram[0] == zygote.REFUSED:
            raise WorkerStartFailed(why_no_process(answer))
        if datagram[0] == zygote.FAILED:
            report: FailureReport = answer
            raise WorkerStartFailed(
                f"could not {report.stage}: {report.type_name}: {report.text}"
            ) from report.exception()
        return answer, answer_fds

    def _wait(self, limit_s: float) -> None:
        """Until it has answered or died. One that is stopped is killed, if there can be another."""
        waited_s = stopped_s = 0.0
        try:
            while not self._poll.poll(_LOOK_S * 1000):
                waited_s += _LOOK_S
                if self._is_closing():
                    raise LoaderClosed("the loader was closed while it started a worker")
                stopped_s = stopped_s + _LOOK_S if is_stopped(self._pid) else 0.0
                if stopped_s > STOPPED_S and not self._is_unique:
                    raise ServerGone("the fork server was stopped (SIGSTOP, or a debugger), and was killed")
                if waited_s >= limit_s:
                    raise ServerGone(f"the fork server did not answer within {limit_s:g} s, and was killed")
        except BaseException:
            self._kill()  # else its answer would be taken for that to the next question
            raise

    def close(self) -> None:
        """Asks it to leave, and kills it if it does not, with all that it has started."""
        # Not by closing alone: a child that the trainer has forked may hold the channel open.
        with contextlib.suppress(OSError):
            self._channel.send(messages.write_pickled(zygote.LEAVE, list(self._dead)))
        self._channel.close()
        is_readable(self._pidfd, _END_TIMEOUT_S)
        self._kill()
        is_readable(self._pidfd, _END_TIMEOUT_S)
        status_of(self._pidfd)
        os.close(self._pidfd)
        # Where the trainer is the first process of a container, it inherits what the server has not waited for.
        for pid in filter(is_dead_child, list(self._dead)):
            with contextlib.suppress(ChildProcessError):  # somebody else in the trainer waits for every child
                os.waitpid(pid, os.WNOHANG)

    def _kill(self) -> None:
        """Its group too; and itself though it has not tied itself to the lifeline yet."""
        self._lifeline.cut()
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


class ServerGone(WorkerStartFailed):
    """The fork server is not there any more: another one may be started."""


_DIED = "the fork server died; what it wrote to standard error tells why"


@contextlib.contextmanager
def _room_beside(fd: int) -> Iterator[None]:
    """There is room for one descriptor afterwards: if there is none, this fails while nothing was done yet."""
    room = os.dup(fd)
    try:
        yield
    finally:
        os.close(room)


def _be_server(made: Ends, recipe: Recipe) -> None:
    """The whole life of a server that was forked."""
    status = 1
    try:
        made.ours.close()
        zygote.main_forked(made.theirs, made.lifeline.alive, recipe)
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the trainer's frames
        sys.excepthook(*sys.exc_info())
    finally:
        guard.flush_streams()
        os._exit(status)


def interpreter(code: str, fds: list[int], name: str) -> int:
    """Starts an interpreter that runs ``code`` of `zygote`, with the descriptors' numbers in it; gives back its pid.

    Before it imports anything heavy it has tied itself to the trainer, so that it goes with it at any moment. Until it
    takes no notice of the signals that are the trainer's, they are blocked; and it has a process group of its own.
    """
    prelude = (
        f"import sys; sys.path[:] = {sys.path!r}; from swift_loader.pool import guard; guard.arm({fds[1]}, {name!r}); "
        "from swift_loader.engines import zygote; "
    )
    child = None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, guard.FOR_THE_TRAINER)
    try:
        with refusals_told():
            child = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-c", prelude + code.format(*fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                process_group=0,
                env={**os.environ, **guard.THREAD_CAPS},
            )
        child.returncode = 0  # its end is waited for by pid, so subprocess must not warn that nobody did
    finally:
        _let_signals_come(before, child)
    return child.pid


def _let_signals_come(mask: set[int | signal.Signals], child: subprocess.Popen[bytes] | None) -> None:
    """What came meanwhile is handled now. If its handler raises, as Ctrl-C's does, nobody will know of the child."""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except BaseException:
        if child is not None:
            os.kill(child.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
        raise


def pidfd_of(pid: int) -> int:
    """A descriptor for a child that was just started."""
    with refusals_told():
        try:
            return os.pidfd_open(pid)
        except ProcessLookupError as error:
            # It ended at once, and the trainer waits for all its children, or ignores SIGCHLD.
            raise WorkerStartFailed(f"process {pid} was started and is gone already: {error}") from error


def status_of(pidfd: int) -> int | None:
    """How a process that is gone has ended, if it is this process's to know: its exit code, or minus the signal."""
    try:
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:  # another's child, or somebody else in the trainer waits for every child
        return None
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
