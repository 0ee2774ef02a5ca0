"""How many cores there are for this process, and how many threads libraries may have for arithmetic."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from swift_loader.host import cgroup

#: Set before a worker's interpreter starts, since the libraries look only once. Many workers with many threads each
#: fight for the cores; a dataset that wants more asks for it in ``worker_init``.
THREAD_CAPS = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)


def allowed() -> set[int]:
    """The cores that this thread may run on: all of them where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def usable(consumers: int = 1) -> float:
    """How many cores' worth of time this thread has: by affinity, and its part of a group's quota."""
    mine, quota = float(len(allowed())), cgroup.core_quota()
    return mine if quota is None else min(mine, quota / max(1, consumers))


@contextlib.contextmanager
def confined(consumers: int) -> Iterator[None]:
    """What this thread starts meanwhile has the cores that one of so many consumers has; one core at least."""
    mine = sorted(allowed())
    share = mine[:: max(1, consumers)][: max(1, len(mine) // max(1, consumers))]
    if len(share) == len(mine):
        yield
        return
    os.sched_setaffinity(0, share)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)
