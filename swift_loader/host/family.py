"""What this process and all below it have used and hold, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def members() -> list[int]:
    """This process and all below it."""
    parents = {int(folder.name): _parent(folder) for folder in _PROC.glob("[0-9]*")}
    found, fresh = [os.getpid()], {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh}
        found += sorted(fresh)
    return found


def cpu_s() -> float:
    """Their CPU time, and that of those that have ended and were reaped."""
    ticks = 0
    for pid in members():
        words = _after_name(_PROC / str(pid)).split()
        ticks += sum(map(int, words[11:15]))
    return ticks * _TICK_S


def pss_nbytes() -> int | None:
    """Their memory, with pages that several share divided among them; None where the kernel does not tell."""
    total = 0
    for pid in members():
        try:
            text = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii")
        except ProcessLookupError:
            continue
        except OSError:
            return None
        _, found, rest = text.partition("\nPss:")
        total += int(rest.split(maxsplit=1)[0]) * 1024 if found else 0
    return total


def _parent(folder: Path) -> int:
    words = _after_name(folder).split()
    return int(words[1]) if words else 0


def _after_name(folder: Path) -> str:
    try:
        return (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:  # it has just gone
        return ""
