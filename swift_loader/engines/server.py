"""The trainer's side of a fork server, and how an interpreter is started, for a server or a worker of its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from swift_loader.engines import zygote
from swift_loader.engines.lifeline import Ends, Lifeline, ends, is_readable
from swift_loader.errors import FailureReport, WorkerStartFailed
from swift_loader.pool import messages
from swift_loader.pool.channel import SocketChannel
from swift_loader.pool.guard import THREAD_CAPS
from swift_loader.pool.limits import why_no_process
from swift_loader.pool.recipe import Recipe

#: A server that loads torch over a slow network file system may take this long to answer, and no longer.
_ANSWER_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 1.0


class Server:
    """A process that forks workers on request."""

    def __init__(self, pid: int, channel: SocketChannel, lifeline: Lifeline) -> None:
        self._pidfd = pidfd_of(pid)
        self._channel = channel
        self._lifeline = lifeline
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    @classmethod
    def started(cls, modules: list[str]) -> Server:
        """One in an interpreter of its own, without the user's main module."""
        with ends() as made:
            pid = interpreter(f"zygote.main({{}}, {{}}, {modules!r})", made.fds, "swift-zygote")
            return cls(pid, made.ours, made.lifeline)

    @classmethod
    def forked(cls, recipe: Recipe) -> Server:
        """One that is a copy of this process, dataset and all."""
        with ends() as made:
            # What the user has set up for signals must not run in the child.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                pid = os.fork()
                if pid == 0:
                    _be_server(made, recipe)
            except OSError as error:
                raise WorkerStartFailed(why_no_process(error.errno)) from error
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return cls(pid, made.ours, made.lifeline)

    def alive(self) -> bool:
        """Whether it still runs."""
        return not is_readable(self._pidfd, 0.0)

    def ask(self, kind: int, value: Any, fds: Sequence[int] = ()) -> tuple[Any, list[int]]:
        """One question, one answer.

        Raises:
            ServerGone: if it dies instead.
            WorkerStartFailed: if it cannot do what it is asked.
        """
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
            is_readable(self._pidfd, _END_TIMEOUT_S)  # its channel closes a moment before it is seen to be gone
            raise ServerGone("the fork server died; what it wrote to standard error tells why")
        answer = messages.read_pickled(datagram)
        if datagram[0] == zygote.REFUSED:
            raise WorkerStartFailed(why_no_process(answer))
        if datagram[0] == zygote.FAILED:
            report: FailureReport = answer
            raise WorkerStartFailed(
                f"could not {report.stage}: {report.type_name}: {report.text}"
            ) from report.exception()
        return answer, answer_fds

    def close(self) -> None:
        """Asks it to leave, and kills it if it does not, with all that it has started."""
        # Not by closing alone: a child that the trainer has forked may hold the channel open.
        with contextlib.suppress(OSError):
            self._channel.send(messages.write_pickled(zygote.LEAVE, None))
        self._channel.close()
        is_readable(self._pidfd, _END_TIMEOUT_S)
        self._lifeline.cut()
        is_readable(self._pidfd, _END_TIMEOUT_S)
        status_of(self._pidfd)
        os.close(self._pidfd)


class ServerGone(WorkerStartFailed):
    """The fork server is not there any more: another one may be started."""


def _be_server(made: Ends, recipe: Recipe) -> None:
    """The whole life of a server that was forked."""
    status = 1
    try:
        made.ours.close()
        zygote.main_forked(made.theirs, made.lifeline.alive, recipe)
        status = 0
    finally:
        os._exit(status)


def interpreter(code: str, fds: list[int], name: str) -> int:
    """Starts an interpreter that runs ``code`` of `zygote`, with the descriptors' numbers in it; gives back its pid.

    Before it imports anything heavy it has tied itself to the trainer, so that it goes with it at any moment. It has a
    process group of its own from the beginning, so that no Ctrl-C finds it while it still imports.
    """
    prelude = (
        f"import sys; sys.path[:] = {sys.path!r}; from swift_loader.pool import guard; guard.arm({fds[1]}, {name!r}); "
        "from swift_loader.engines import zygote; "
    )
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", prelude + code.format(*fds)],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            process_group=0,
            env={**os.environ, **THREAD_CAPS},
        )
    except OSError as error:
        raise WorkerStartFailed(why_no_process(error.errno)) from error
    child.returncode = 0  # its end is waited for by pid, so subprocess must not warn that nobody did
    return child.pid


def pidfd_of(pid: int) -> int:
    """A descriptor for a child that was just started."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
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
