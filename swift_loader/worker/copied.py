"""In a copy of the trainer and in workers forked from it: what of the trainer's must be let go of."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterable
from typing import Any

from swift_loader.host.procfs import open_files
from swift_loader.worker import guard
from swift_loader.worker.threads import Setter, one_thread_each


def be_a_copy(keep: Iterable[int], setters: Iterable[Setter]) -> None:
    """In the copy, while signals are blocked: lets go of what is the trainer's alone."""
    guard.drop_what_is_the_trainers()
    _drop_connections(set(keep))
    one_thread_each(setters)
    tqdm: Any = sys.modules.get("tqdm.std")
    if tqdm is not None:
        tqdm.tqdm.set_lock(threading.RLock())  # the one that was held while this process was made stays closed
    cv2: Any = sys.modules.get("cv2")
    if cv2 is not None:
        with contextlib.suppress(Exception):
            cv2.setNumThreads(0)  # its threads were not copied, and it would wait for them


def have_ones_own() -> None:
    """In a worker, first of all: a place of its own in each file that is only read, connections of its own to managers.

    Those that share them read what another one has looked for.
    """
    for fd in open_files():
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(fd).st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                mine = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
                os.lseek(mine, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
                os.dup2(mine, fd, inheritable=os.get_inheritable(fd))
                os.close(mine)
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._run_after_forkers()  # as in its own processes


def _drop_connections(keep: set[int]) -> None:
    """Else a port would stay taken, and whoever is at the other end not see that the trainer has closed its own.

    Their numbers stay taken: somebody here may think that they are his, and close them.
    """
    ours, theirs = socket.socketpair()
    theirs.close()
    usual = socket.getdefaulttimeout()
    socket.setdefaulttimeout(None)  # else those that are looked at would not block any more, in the trainer neither
    with ours:
        for fd in open_files().keys() - keep - {1, 2, ours.fileno()}:
            if _is_connection(fd):
                os.dup2(ours.fileno(), fd, inheritable=False)
    socket.setdefaulttimeout(usual)


def _is_connection(fd: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as found:
            return found.family in (socket.AF_INET, socket.AF_INET6)
    except OSError:  # closed meanwhile, or of a family that Python does not know
        return False
