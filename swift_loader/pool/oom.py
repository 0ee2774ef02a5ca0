"""Whether the kernel has killed a worker because memory was short: it counts that, for each control group."""

from __future__ import annotations

import threading
from pathlib import Path

from swift_loader.pool.cgroup import NO_LIMIT, folders, number


class OomKills:
    """The kernel's count for this process's group, in which its workers are too."""

    def __init__(self, groups: list[Path] | None = None) -> None:
        self._groups = folders("memory") if groups is None else groups
        self._lock = threading.Lock()
        self._seen = self._count()

    @property
    def can_tell(self) -> bool:
        """Whether there is such a count."""
        return self._seen is not None

    def explain(self) -> str:
        """Words for one worker that got a SIGKILL from nobody known; empty if it was not the kernel's."""
        with self._lock:
            count = self._count()
            if count is None or self._seen is None or count <= self._seen:
                return ""
            self._seen += 1  # the others are of workers that are still to be told of
        limit, used = self._tightest()
        if limit is None:
            return "was killed by the kernel (no memory limit is set: the machine itself ran short; take fewer workers)"
        return (
            f"was killed by the kernel (memory limit of the job {limit:,} bytes, {used:,} in use after that: take "
            "fewer workers or a smaller batch_size, or give the job more)"
        )

    def _count(self) -> int | None:
        for group in self._groups[:1]:  # counted where the killed process was, whichever group's limit it met
            for name in ("memory.events", "memory.oom_control"):
                try:
                    lines = (group / name).read_text(encoding="ascii").splitlines()
                except OSError:
                    continue
                counts = dict(line.split(" ", 1) for line in lines)
                if "oom_kill" in counts:
                    return int(counts["oom_kill"])
        return None

    def _tightest(self) -> tuple[int | None, int]:
        found = []
        for group in self._groups:
            limit = number(group / "memory.max", number(group / "memory.limit_in_bytes"))
            used = number(group / "memory.current", number(group / "memory.usage_in_bytes"))
            if limit is not None and limit < NO_LIMIT and used is not None:
                found.append((limit, used))
        return min(found, default=(None, 0))
