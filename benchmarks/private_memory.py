"""How much memory the workers below a process have for themselves, from the kernel's own books.

It does not know whose workers they are: they are the process's descendants that have no children of their own.
"""

from __future__ import annotations

from pathlib import Path

import psutil  # type: ignore[import-untyped]

PRIVATE = ("Private_Clean:", "Private_Dirty:", "Private_Hugetlb:")
#: Processes that multiprocessing starts beside the workers.
NOT_WORKERS = ("resource_tracker",)


def private_mb(pid: int) -> float:
    """Memory that would be free if this process alone went (USS), in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = sum(int(line.split()[1]) for line in lines if line.startswith(PRIVATE))
    return kilobytes * 1024 / 1e6


def family() -> tuple[list[psutil.Process], list[psutil.Process]]:
    """This process's workers, and its other descendants (a fork server, a resource tracker)."""
    workers: list[psutil.Process] = []
    others: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        tracker = any(word in " ".join(process.cmdline()) for word in NOT_WORKERS)
        (others if tracker or process.children() else workers).append(process)
    return workers, others
