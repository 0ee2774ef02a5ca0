"""What processes use of cores and memory, as /proc tells; and how many cores one consumer has here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from swift_loader.host import cgroup

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_NS = 1e9
#: Where these stand in /proc/PID/stat, counted from the state on, which follows the name.
_OWN_AND_CHILDREN = slice(11, 15)


class Load(NamedTuple):
    """Sums over processes."""

    cpu_s: float
    """Of their threads, and of the children that they have reaped."""
    queued_s: float
    """A thread wanted a core and had none; 0 where the kernel does not tell."""
    nbytes: int
    """The own memory of the largest."""


def load_of(pids: Iterable[int]) -> Load:
    """Processes that have gone count for nothing."""
    ticks, queued_ns, most = 0, 0, 0
    for pid in pids:
        folder = Path("/proc") / str(pid)
        words = _text(folder / "stat").rpartition(")")[2].split()
        ticks += sum(map(int, words[_OWN_AND_CHILDREN]))
        queued_ns += sum(map(_queued_ns, _threads(folder)))
        most = max(most, _own_nbytes(folder))
    return Load(ticks * _TICK_S, queued_ns / _NS, most)


def cores_of_one(consumers: int) -> float:
    """How many cores this thread has, `confined` to one of so many consumers: by affinity, and by a group's quota."""
    mine, quota = float(len(os.sched_getaffinity(0))), cgroup.core_quota()
    return mine if quota is None else min(mine, quota / max(1, consumers))


@contextlib.contextmanager
def confined(consumers: int) -> Iterator[None]:
    """What this thread starts meanwhile has the cores that one of so many consumers has; one core at least."""
    allowed = sorted(os.sched_getaffinity(0))
    share = allowed[:: max(1, consumers)][: max(1, len(allowed) // max(1, consumers))]
    if len(share) == len(allowed):
        yield
        return
    os.sched_setaffinity(0, share)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _threads(folder: Path) -> list[Path]:
    try:
        return list((folder / "task").iterdir())
    except OSError:
        return []


def _queued_ns(thread: Path) -> int:
    words = _text(thread / "schedstat").split()
    return int(words[1]) if len(words) == 3 else 0


def _own_nbytes(folder: Path) -> int:
    _, found, rest = _text(folder / "status").partition("RssAnon:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
