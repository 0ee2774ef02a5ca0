"""How much memory this host, or the control group that we run in, has to give; and refusing to take more."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

from swift_loader.errors import FailureReport, NoRoom
from swift_loader.host import cgroup

#: What is never taken for slots: the kernel would end a process, and mostly the largest one, which is the trainer.
RESERVE_NBYTES = 16 << 20
#: So much is left to all that is not a slot, once slots are made.
LEFT_NBYTES = 3 * RESERVE_NBYTES
_MEGABYTE = 1 << 20


def free_nbytes() -> int:
    """What may still be taken: the kernel's own estimate, or less where a control group sets a limit."""
    free, allowed = _available(), cgroup.free_memory()
    return free if allowed is None else min(free, allowed)


def refuse_too_much(nbytes: int, batch_nbytes: int) -> None:
    """Raises `NoRoom` where ``nbytes`` more, for a batch of ``batch_nbytes``, would have the kernel kill one."""
    free = free_nbytes()
    if nbytes + RESERVE_NBYTES > free:
        raise NoRoom.of(
            f"no memory for a batch of {batch_nbytes / _MEGABYTE:,.0f} MB: {free / _MEGABYTE:,.0f} MB are free here"
            f"{limited()}. Take a smaller batch_size or fewer workers, or give the job more memory",
            nbytes,
            free,
        )


def with_memory_told(report: FailureReport) -> FailureReport:
    """The report of a MemoryError, which itself says little, with what this process has and may have."""
    if not report.type_name.endswith("MemoryError"):
        return report
    import resource  # noqa: PLC0415 - not every system has it

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    allowed = "" if limit == resource.RLIM_INFINITY else f" of the {limit / _MEGABYTE:,.0f} MB it may have (ulimit -v)"
    text = f"{report.text or 'no memory'} [the worker has taken {_taken() / _MEGABYTE:,.0f} MB of addresses{allowed}, "
    text += f"{free_nbytes() / _MEGABYTE:,.0f} MB are free here{limited()}]"
    return replace(report, text=text)


def _taken() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no /proc here
        return 0


def limited() -> str:
    """In words, whose limit it is that memory is short by."""
    return "" if cgroup.free_memory() is None else " (the limit is that of the job's control group)"


def _available() -> int:
    with contextlib.suppress(OSError):  # no /proc here
        _, found, rest = Path("/proc/meminfo").read_text(encoding="ascii").partition("MemAvailable:")
        if found:
            return int(rest.split(maxsplit=1)[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
