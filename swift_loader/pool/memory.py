"""How much memory this host, or the container we run in, has to give."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def default_budget(consumer_count: int) -> int:
    """Half of what is free, divided by the ranks of this host."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or consumer_count)
    return max(1, free_nbytes() // 2 // max(1, ranks))


def free_nbytes() -> int:
    """What may still be taken: the kernel's own estimate, or less where a control group sets a limit."""
    free = _available()
    limit = _number(_CGROUP / "memory.max")
    used = _number(_CGROUP / "memory.current")
    return free if limit is None or used is None else max(0, min(free, limit - used))


def _available() -> int:
    with Path("/proc/meminfo").open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" means no limit
