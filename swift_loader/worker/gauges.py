"""In the child: how long a worker used a core, how long it wanted one, and how much memory of its own it has taken.

What is left of its time it waited for something else, and that is what more workers can do side by side. The clocks
are read when some time has passed since the last look, since a look costs 2 us, and more beside work; what was not told
of one batch is told of the next. Memory is weighed where it is limited (``max_worker_nbytes``): what it shares with
nobody, so slots and files are left out, and what it was forked with. A worker that has grown too large leaves between
two batches, and a fresh one goes on.
"""

from __future__ import annotations

import contextlib
import os
from time import perf_counter_ns, process_time_ns

from swift_loader.host.procfs import own_in
from swift_loader.wire.messages import Leaving

#: Batches that were made in less than this, together, are not worth a look; nor are those that took a sixteenth of all
#: that was told so far, up to the second of these.
_LEAST_NS, _MOST_NS = 1_000_000, 10_000_000


class Clocks:
    """Of this process. Has a descriptor until it is closed."""

    def __init__(self) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):  # no /proc here: then nobody says so
            # Of the thread that makes batches: where others fetch for it, it is the one that they keep waiting.
            self._fd = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._cpu_ns, self._delay_ns = process_time_ns(), self._delayed_ns()
        self._passed_ns = self._told_ns = 0
        self._due_ns = _LEAST_NS

    def since(self, passed_ns: int) -> tuple[int, int]:
        """Another batch was made, in so much time; gives back both times since they were told last, or zeros."""
        self._passed_ns += passed_ns
        if self._passed_ns < self._due_ns:
            return 0, 0
        self._told_ns += self._passed_ns
        self._passed_ns, self._due_ns = 0, min(max(_LEAST_NS, self._told_ns // 16), _MOST_NS)
        cpu_ns, delay_ns = process_time_ns(), self._delayed_ns()
        told = cpu_ns - self._cpu_ns, max(0, delay_ns - self._delay_ns)
        self._cpu_ns, self._delay_ns = cpu_ns, delay_ns
        return told

    def close(self) -> None:
        """May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _delayed_ns(self) -> int:
        if self._fd < 0:
            return 0
        try:
            return int(os.pread(self._fd, 100, 0).split()[1])
        except (OSError, ValueError, IndexError):
            self.close()
            return 0


#: Later than any clock.
NEVER = 1 << 62
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
        return own_in(os.pread(self._fd, 200, 0))
