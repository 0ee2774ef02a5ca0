"""In the child: how long a worker used a core, and for how long it could have run and got none.

What is left of its time it waited for something else, and that is what more workers can do side by side. Read when some
time has passed since the last look, since a look costs 2 us, and more beside work; what was not told of one batch is
told of the next.
"""

from __future__ import annotations

import contextlib
import os
from time import process_time_ns

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
