"""What the kernel tells of a process, in /proc: its state, its end, what it uses of cores and of memory.

A number must not be another's by now: nobody has waited for that process. Of one that has gone nothing is known, and
nothing on a system without /proc.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import NamedTuple, Self

from swift_loader.host.systems import flags

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_NS = 1e9
_STATE, _PARENT, _EXIT_STATUS = 0, 1, 49
#: Of itself, user and system; and of the children that it has reaped.
_TICKS = slice(11, 15)


class Stat(NamedTuple):
    """One look at a process."""

    name: str
    """As ``ps`` shows it."""
    fields: list[bytes]
    """All that follow the name, which may hold anything."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """None of one that has gone."""
        try:
            head, _, rest = read(f"/proc/{pid}/stat").rpartition(b")")
        except OSError:
            return None
        return cls(head.partition(b"(")[2].decode(errors="replace"), rest.split())

    @property
    def state(self) -> str:
        return self.fields[_STATE].decode()

    @property
    def has_ended(self) -> bool:
        """Whether only its number is left, until somebody waits for it."""
        return self.state in ("Z", "X")

    @property
    def parent(self) -> int:
        return int(self.fields[_PARENT])

    @property
    def cpu_s(self) -> float:
        """Time on a core, of all its threads and of the children that it has reaped."""
        return sum(map(int, self.fields[_TICKS])) / _TICKS_PER_S

    @property
    def status(self) -> int:
        """How it has ended, if it has: its exit code, or minus the signal."""
        return os.waitstatus_to_exitcode(int(self.fields[_EXIT_STATUS]))


def is_stopped(pid: int) -> bool:
    """Whether the system has stopped it: by a signal, or for a debugger."""
    seen = Stat.of(pid)
    return seen is not None and seen.state in ("T", "t")


def status_told(pid: int) -> int | None:
    """How it has ended, if it has: its exit code, or minus the signal. None where nobody knows any more.

    Whoever runs as the same user may read this, the parent's word is not needed: a parent may be stopped, or busy.
    """
    seen = Stat.of(pid)
    return seen.status if seen is not None and seen.state == "Z" else None


def is_dead_child(pid: int) -> bool:
    """Whether it is a child of this process, which has ended and was not waited for."""
    seen = Stat.of(pid)
    return seen is not None and seen.state == "Z" and seen.parent == os.getpid()


def own_nbytes(pid: int | str = "self") -> int | None:
    """The memory that a process shares with nobody: no slots, no files."""
    try:
        return own_in(read(f"/proc/{pid}/statm"))
    except (OSError, ValueError):
        return None


def own_in(statm: bytes) -> int:
    """The same, from the line that the kernel writes."""
    _, resident, shared, *_ = statm.split()
    return (int(resident) - int(shared)) * mmap.PAGESIZE


def queued_s(pid: int) -> float:
    """How long its threads wanted a core and had none; 0 where the kernel does not tell."""
    total_ns = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names are all that is wanted
            words = read(f"/proc/{pid}/task/{thread}/schedstat").split()
            total_ns += int(words[1]) if len(words) == 3 else 0
    return total_ns / _NS


def open_files() -> dict[int, str]:
    """The descriptors of this process, and what they lead to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - in a copy each object is a page of its own
        with contextlib.suppress(OSError):  # the one that listed the folder
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - as above
    return found


def read(path: str, most_nbytes: int = 1 << 14) -> bytes:
    """What a file says.

    Not by `open`, which is gone from the builtins when the last loaders are closed at the interpreter's end.
    """
    fd = os.open(path, flags("O_RDONLY", "O_CLOEXEC"))
    try:
        return os.read(fd, most_nbytes)
    finally:
        os.close(fd)
