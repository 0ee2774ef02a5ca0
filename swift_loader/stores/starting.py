"""The fetcher is started: by whoever has found that there is none, which no two processes find at once."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

#: What of the environment it gets. Keys and what they belong to reach it by a socket, since others may read this.
_PREFIXES = ("LD_", "LC_", "PYTHON")
_NAMES = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "SWIFT_LOADER_FETCHER_LINGER_S")
#: What comes over the network lies in a few megabytes at a time, which go back to the system at once if nothing else is
#: said, and are filled with zeros again for the next ones: a sixth of all that receiving costs.
_MEMORY = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": str(128 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}


def start(listening: socket.socket) -> None:
    """Has a fetcher of its own answer those who ask at this socket; returns when it is on its way.

    It is executed, not forked: nothing of this process is in it. It belongs to nobody: what is started here starts it,
    and ends at once, so that nobody has to wait for its end.

    Raises:
        OSError: if no process can be started.
    """
    fd = listening.fileno()
    root = str(Path(__file__).resolve().parents[2])
    path = [root, *(os.path.abspath(each) for each in sys.path if each != root)]  # noqa: PTH100 - as they are
    code = f"import sys; sys.path[:] = {path!r}; from swift_loader.fetcher.main import main; main({fd})"
    around = {name: text for name, text in os.environ.items() if name.startswith(_PREFIXES) or name in _NAMES}
    around.update(_MEMORY)
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        # Whoever waits for the end of what a training prints must not wait for the fetcher's.
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    os.set_inheritable(fd, True)  # noqa: FBT003 - as it is called
    try:
        child = os.posix_spawn(sys.executable, [sys.executable, "-I", "-c", code], around, file_actions=files)
    finally:
        os.set_inheritable(fd, False)  # noqa: FBT003 - as it is called
    with suppress(ChildProcessError):  # somebody waits for all children of this process
        os.waitpid(child, 0)
