"""In the child: how much memory of its own a worker has taken, where that is limited (``max_worker_nbytes``).

Its own is what it shares with nobody: slots and files are left out, and so is what it was forked with. A worker that
has grown too large leaves between two batches, and a fresh one goes on.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from time import perf_counter_ns

from swift_loader.batch.rowcode import NEVER
from swift_loader.pool.messages import Leaving

#: Looking costs 3 us.
_EVERY_NS = 10_000_000


class Scale:
    """Made before the dataset is."""

    def __init__(self) -> None:
        self._fd = -1
        with contextlib.suppress(FileNotFoundError):  # no /proc here, and nothing to weigh by
            self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._begun = self._nbytes()
        self._most = 0
        self._first: int | None = None
        self.due_ns = NEVER
        """When to look next."""

    def limit(self, most_nbytes: int | None) -> None:
        """From now on the worker may take so much."""
        if most_nbytes is None or self._fd < 0:
            self.close()
        else:
            self._most, self.due_ns = most_nbytes, 0

    def weigh(self) -> Leaving | None:
        """After a batch: what to tell when this worker is to leave."""
        taken = self._nbytes() - self._begun
        if self._first is None:
            self._first = taken
        self.due_ns = perf_counter_ns() + _EVERY_NS
        return Leaving(taken, self._first) if taken > self._most else None

    def close(self) -> None:
        """May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _nbytes(self) -> int:
        if self._fd < 0:
            return 0
        _, resident, shared, *_ = os.pread(self._fd, 200, 0).split()
        return (int(resident) - int(shared)) * mmap.PAGESIZE
