"""What ties a child to the trainer: a channel, and a lifeline that ends it with all that it has started.

A lifeline is a pipe. Its only write end is the trainer's; the child has armed its read end (`guard.die_with`) so that
the kernel kills the child's process group when the write end closes: because the trainer has gone, however it went, or
because the lifeline was cut. So the write ends must stay with the trainer: they are closed on exec, and in children
that the trainer forks. The trainer keeps the read end too: when the child alone has died, cutting the lifeline still
ends those whom it has started. The kernel holds the group itself, not its number, so nobody else is ever hit.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from swift_loader.host.limits import refusals_told
from swift_loader.wire.channel import SocketChannel

_lifelines: set[Lifeline] = set()
#: Held while a lifeline is made or cut, and by whoever forks: no child has a write end that it does not know of, nor
#: knows of one whose number is another file's by then. A signal handler that forks may enter again.
_no_fork = threading.RLock()


class Lifeline:
    """The trainer's hold on one child and its group."""

    def __init__(self) -> None:
        with _no_fork:
            self.alive, self._write_end = os.pipe2(os.O_CLOEXEC)
            _lifelines.add(self)

    @property
    def fds(self) -> set[int]:
        """Both ends."""
        return {self.alive, self._write_end}

    def cut(self) -> None:
        """Kills what is left of the child's group; may be called twice."""
        with _no_fork:
            self.forget()
            _lifelines.discard(self)
        if self.alive >= 0:
            os.close(self.alive)
            self.alive = -1

    def forget(self) -> None:
        """Lets go of the write end. That kills, unless another process holds it too."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


def _forget_lifelines() -> None:
    for lifeline in _lifelines:
        with contextlib.suppress(OSError):
            lifeline.forget()
    _lifelines.clear()
    _no_fork.release()


os.register_at_fork(before=_no_fork.acquire, after_in_parent=_no_fork.release, after_in_child=_forget_lifelines)


@dataclass(frozen=True, slots=True)
class Ends:
    """What connects this process and a child."""

    ours: SocketChannel
    theirs: socket.socket
    lifeline: Lifeline

    @property
    def fds(self) -> list[int]:
        """What the child is given: its end of the channel, and of its lifeline."""
        return [self.theirs.fileno(), self.lifeline.alive]


@contextlib.contextmanager
def ends() -> Iterator[Ends]:
    """Makes the ends; the child's end of the channel is closed here afterwards, and all if there is no child.

    Raises:
        WorkerStartFailed: if there may not be so many open files.
    """
    with contextlib.ExitStack() as undone:
        with refusals_told():
            ours, theirs = SocketChannel.pair()
            undone.callback(ours.close)
            undone.callback(theirs.close)
            lifeline = Lifeline()
            undone.callback(lifeline.cut)
        yield Ends(ours, theirs, lifeline)
        undone.pop_all()
        theirs.close()


def is_readable(fd: int, timeout_s: float) -> bool:
    """Whether there is something to read, or a process has gone if ``fd`` is its pidfd; waits for it so long."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
