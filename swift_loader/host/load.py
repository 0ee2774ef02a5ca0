"""What processes use of cores and memory: those that are named, or this one and all below it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from swift_loader.host import procfs


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
    cpu_s, queued_s, most = 0.0, 0.0, 0
    for pid in pids:
        if (seen := procfs.Stat.of(pid)) is not None:
            cpu_s += seen.cpu_s
            queued_s += procfs.queued_s(pid)
            most = max(most, procfs.own_nbytes(pid) or 0)
    return Load(cpu_s, queued_s, most)


def family() -> list[int]:
    """This process and all below it."""
    seen = {int(name): procfs.Stat.of(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
    found, fresh = [os.getpid()], {os.getpid()}
    while fresh:
        fresh = {pid for pid, one in seen.items() if one is not None and one.parent in fresh}
        found += sorted(fresh)
    return found


def family_cpu_s() -> float:
    """Their CPU time, and that of those that have ended and were reaped."""
    return sum(seen.cpu_s for pid in family() if (seen := procfs.Stat.of(pid)) is not None)


def family_pss_nbytes() -> int | None:
    """Their memory, with pages that several share divided among them; None where the kernel does not tell."""
    total = 0
    for pid in family():
        try:
            text = procfs.read(f"/proc/{pid}/smaps_rollup")
        except (FileNotFoundError, ProcessLookupError):  # it has just gone
            continue
        except OSError:
            return None
        _, found, rest = text.partition(b"\nPss:")
        total += int(rest.split(maxsplit=1)[0]) * 1024 if found else 0
    return total
