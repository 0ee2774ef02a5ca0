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


def held_mb(pids: Iterable[int]) -> float:
    """What processes hold together, in MB: each page once, however many of them have it.

    Memory of their own, and shared memory, as the kernel divides it among those who have it (PSS). Pages of programs
    and libraries as many as the one has that has most of them: the kernel divides these by all processes of the
    machine, so that whatever else runs there would change the result. And what waits between two of them: shared memory
    that has a descriptor, and that none of them maps just now.
    """
    nbytes, of_files, mapped, open_files = 0, 0, set[int](), dict[int, int]()
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        try:
            if _is_about_to_start(folder):
                continue
            divided, whole = _figures(folder / "smaps_rollup"), _figures(folder / "status")
            mapped |= {int(line.split()[4]) for line in (folder / "maps").read_text().splitlines() if _is_shared(line)}
        except (FileNotFoundError, ProcessLookupError):  # it has just gone
            continue
        nbytes += divided.get("Pss_Anon", 0) + divided.get("Pss_Shmem", 0)
        of_files = max(of_files, whole.get("RssFile", 0))
        open_files.update(_shared_files(folder / "fd"))
    return (nbytes + of_files + sum(size for inode, size in open_files.items() if inode not in mapped)) / 1e6


def _figures(file: Path) -> dict[str, int]:
    lines = [line.split() for line in file.read_text().splitlines()]
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def _is_about_to_start(folder: Path) -> bool:
    """Whether it still has the very memory of its parent, which waits until it has become another program (vfork)."""
    parent = Path(f"/proc/{(folder / 'stat').read_text().rpartition(')')[2].split()[1]}")
    try:
        waits = (parent / "stat").read_text().rpartition(")")[2].split()[0] == "D"
        return waits and (folder / "maps").read_text() == (parent / "maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


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
