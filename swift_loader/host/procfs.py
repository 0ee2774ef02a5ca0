"""What the kernel tells of a process, in /proc. Its number must not be another's by now: nobody has waited for it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_STATE, _PARENT, _EXIT_STATUS = 0, 1, 49


def is_stopped(pid: int) -> bool:
    """Whether the system has stopped it: by a signal, or for a debugger."""
    fields = _fields(pid)
    return bool(fields) and fields[_STATE] in {b"T", b"t"}


def status_told(pid: int) -> int | None:
    """How it has ended, if it has: its exit code, or minus the signal. None where nobody knows any more.

    Whoever runs as the same user may read this, the parent's word is not needed: a parent may be stopped, or busy.
    """
    fields = _fields(pid)
    return os.waitstatus_to_exitcode(int(fields[_EXIT_STATUS])) if fields and fields[_STATE] == b"Z" else None


def is_dead_child(pid: int) -> bool:
    """Whether it is a child of this process, which has ended and was not waited for."""
    fields = _fields(pid)
    return bool(fields) and fields[_STATE] == b"Z" and int(fields[_PARENT]) == os.getpid()


def _fields(pid: int) -> list[bytes]:
    """All that follow the name, which may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return []
    return text[text.rindex(b")") + 2 :].split()


def open_files() -> dict[int, str]:
    """The descriptors of this process, and what they lead to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - in a copy each object is a page of its own
        with contextlib.suppress(OSError):  # the one that listed the folder
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - as above
    return found
