"""What a worker's threads were at, in words: told when it is asked, and by itself when a signal kills it.

The worker's side arms Python's faulthandler, which writes without the interpreter lock, in the middle of anything; the
consumer's side reads. Between them is an anonymous file, so nothing is left behind and nothing is waited for.
"""

from __future__ import annotations

import faulthandler
import os
import signal

from swift_loader.host.memfile import memory_file

#: A signal that nobody else uses; the first ones belong to the C library, the last ones to debuggers.
ASK = signal.SIGRTMAX - 7
_MOST_NBYTES = 16 * 1024


class Stacks:
    """The consumer's side, for one worker."""

    def __init__(self) -> None:
        self.fd = memory_file("swift-stacks")
        self._read = 0

    def fresh(self) -> str:
        """What was written since the last call: the end of it, where it is long."""
        end = os.fstat(self.fd).st_size
        start, self._read = max(self._read, end - _MOST_NBYTES), end
        return os.pread(self.fd, end - start, start).decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self.fd)


def write_stacks_to(fd: int) -> None:
    """The worker's side: from now on its stacks are written there. Takes the descriptor over."""
    os.lseek(fd, 0, os.SEEK_END)
    faulthandler.disable()  # in a copy of a script that had it on: others may have taken its signals since
    faulthandler.enable(file=fd, all_threads=True)
    faulthandler.register(ASK, file=fd, all_threads=True)
