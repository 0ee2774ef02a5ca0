"""An interpreter that is tied to this process: how it is started, and how it has ended. Others wait for this import."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from swift_loader.errors import WorkerStartFailed
from swift_loader.host.cores import THREAD_CAPS
from swift_loader.host.limits import refusals_told
from swift_loader.worker import guard

#: What workers hash text by, where the environment says nothing: the same for all ranks, loaders and runs, since a
#: dataset that goes through a set of names numbers them otherwise with each other seed.
_HASH_SEED = "0"


def interpreter(code: str, fds: list[int], name: str) -> int:
    """Starts an interpreter that runs ``code`` of `zygote`, with the descriptors' numbers in it; gives back its pid.

    Before it imports anything heavy it has tied itself to the trainer, so that it goes with it at any moment. Until it
    takes no notice of the signals that are the trainer's, they are blocked; and it has a process group of its own.
    """
    prelude = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from swift_loader.worker import guard; guard.arm({fds[1]}, {name!r}); "
        "from swift_loader.worker import zygote; "
    )
    hash_seed = os.environ.get("PYTHONHASHSEED") or "random"
    fixed = {"PYTHONHASHSEED": _HASH_SEED if hash_seed == "random" else hash_seed}
    child = None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, guard.FOR_THE_TRAINER)
    try:
        with refusals_told():
            child = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-c", prelude + code.format(*fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                process_group=0,
                env={**os.environ, **THREAD_CAPS, **fixed},
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
        undo(0 if child is None else child.pid)
        raise


def undo(pid: int) -> None:
    """Ends a child that nobody will know of."""
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


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
