"""How much memory the workers below a process have for themselves, from the kernel's own books.

It does not know whose workers they are: they are the process's descendants that have no children of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
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


def shared_out_mb(pids: Iterable[int]) -> float:
    """What processes hold, with pages that several share divided among them (PSS), in MB.

    And what waits between two of them: shared memory that has a descriptor, and that none of them maps just now.
    """
    nbytes, mapped, open_files = 0, set[int](), dict[int, int]()
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        try:
            _, found, rest = (folder / "smaps_rollup").read_text().partition("\nPss:")
            mapped |= {int(line.split()[4]) for line in (folder / "maps").read_text().splitlines() if _is_shared(line)}
        except (FileNotFoundError, ProcessLookupError):  # it has just gone
            continue
        nbytes += int(rest.split(maxsplit=1)[0]) * 1024 if found else 0
        open_files.update(_shared_files(folder / "fd"))
    return (nbytes + sum(size for inode, size in open_files.items() if inode not in mapped)) / 1e6


def _is_shared(line: str) -> bool:
    return "/dev/shm/" in line or "/memfd:" in line


def _shared_files(folder: Path) -> Iterator[tuple[int, int]]:
    """The shared memory that a process has open, by its inode, and how large it is."""
    try:
        links = list(folder.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return
    for link in links:
        with suppress(FileNotFoundError):
            if _is_shared(str(link.readlink())):
                found = link.stat()
                yield found.st_ino, found.st_blocks * 512


def family() -> tuple[list[psutil.Process], list[psutil.Process]]:
    """This process's workers, and its other descendants (a fork server, a resource tracker)."""
    workers: list[psutil.Process] = []
    others: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        tracker = any(word in " ".join(process.cmdline()) for word in NOT_WORKERS)
        (others if tracker or process.children() else workers).append(process)
    return workers, others
