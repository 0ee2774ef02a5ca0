"""A child that a server forks for one client: it ends with the server, or when it is told to."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from swift_loader.engines import copied
from swift_loader.engines.interpreter import pidfd_of, status_of
from swift_loader.engines.lifeline import Lifeline, is_readable
from swift_loader.worker import guard

_END_S = 1.0


@dataclass(slots=True)
class Child:
    """A process that this one has forked."""

    pid: int
    pidfd: int
    lifeline: Lifeline

    def is_gone(self) -> bool:
        """Whether it has ended."""
        return is_readable(self.pidfd, 0.0)

    def end(self) -> None:
        """Kills it with all that it has started, and buries it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.lifeline.cut()
        is_readable(self.pidfd, _END_S)
        status_of(self.pidfd)
        os.close(self.pidfd)


def forked(name: str, life: Callable[[], None], keep_out: Iterable[int]) -> Child:
    """A child that does this and ends; of the descriptors here it has all but some."""
    lifeline = Lifeline()
    guard.flush_streams()
    with copied.quiet():
        pid = os.fork()
        if pid == 0:
            _live(name, lifeline, life, keep_out)
    return Child(pid, pidfd_of(pid), lifeline)


def harm_of_forking() -> str | None:
    """What somebody here is in the middle of, and a child would inherit; None where nobody is."""
    return copied.accelerator_in_use() or copied.others_told(copied.other_threads())


def _live(name: str, lifeline: Lifeline, life: Callable[[], None], keep_out: Iterable[int]) -> None:
    """In the child, to its end."""
    status = 1
    try:
        for fd in keep_out:
            os.close(fd)
        guard.arm(lifeline.alive, name)
        life()
        status = 0
    except BaseException:  # noqa: BLE001 - nothing of the server's is to run here afterwards
        traceback.print_exc()
    finally:
        guard.flush_streams()
        os._exit(status)
