"""What control groups of either version allow, and whether the kernel has killed a worker since memory was short."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path

_PROC = Path("/proc/self")
#: What version 1 says where there is no limit: the largest number of whole pages.
NO_LIMIT = 1 << 60


@cache
def folders(controller: str, proc: Path = _PROC) -> list[Path]:
    """The folders of this process's group and of those above it, for one controller; none where it cannot be told.

    Looked for once: on some hosts the list of mounts is long.
    """
    try:
        groups = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (proc / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    of_controller = of_all = ""
    for line in groups:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            of_controller = path
        elif not names:
            of_all = path
    version = 1 if of_controller else 2
    for line in mounts:
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        is_it = controller in options.split(",") if version == 1 else True
        if kind == ("cgroup" if version == 1 else "cgroup2") and is_it:
            root, place = left.split(" ")[3:5]
            return _upwards(Path(place), of_controller or of_all, root)
    return []


def free_memory(groups: list[Path] | None = None) -> int | None:
    """How much memory the tightest of the groups still gives, pages of files not counted, since the kernel takes those
    back; None where there is no limit.
    """
    rooms = []
    for group in folders("memory") if groups is None else groups:
        limits = map(number, _limit_files(group))
        limit = min((one for one in limits if one is not None and one < NO_LIMIT), default=None)
        if limit is None:
            continue
        used = number(group / "memory.current", number(group / "memory.usage_in_bytes"))
        if used is not None:
            rooms.append(max(0, limit - used + _of_files(group)))
    return min(rooms, default=None)


def core_quota(groups: list[Path] | None = None) -> float | None:
    """How many cores' worth of time the tightest of the groups gives; None where there is no limit."""
    quotas = []
    for group in folders("cpu") if groups is None else groups:
        period = number(group / "cpu.cfs_period_us")
        quota = number(group / "cpu.cfs_quota_us")  # -1 means no limit, and is no number here
        words = _text(group / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit():
            quota, period = int(words[0]), int(words[1])
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def number(path: Path, default: int | None = None) -> int | None:
    """What a file of a group says; the default where it is not there, or says "max"."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else default


@cache
def _limit_files(group: Path) -> tuple[Path, ...]:
    names = ("memory.max", "memory.high", "memory.limit_in_bytes")
    return tuple(group / name for name in names if (group / name).exists())


def _of_files(group: Path) -> int:
    counts = dict(line.rsplit(" ", 1) for line in _text(group / "memory.stat").splitlines())
    return sum(int(counts.get(f"total_{name}", counts.get(name, "0"))) for name in ("inactive_file", "active_file"))


def _upwards(place: Path, path: str, root: str) -> list[Path]:
    """In a container, what is mounted may be the group itself: its path then begins with the mount's root."""
    if path == root:
        inside = ""
    elif root != "/" and path.startswith(root + "/"):
        inside = path[len(root) :]
    else:
        inside = path
    folder = place / inside.strip("/")
    if not folder.is_dir():  # a path of the host's, which is not seen from here
        return [place]
    return [folder, *(above for above in folder.parents if above.is_relative_to(place))]


def _text(path: Path) -> str:
    try:
        with path.open("rb", buffering=0) as file:
            return (file.read() or b"").decode("ascii", "replace")
    except OSError:
        return ""


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
