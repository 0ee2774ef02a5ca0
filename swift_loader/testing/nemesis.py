"""Kills and stops the workers of a running loader, at times that a seed decides."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from swift_loader.loader import SwiftLoader

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "abort": signal.SIGABRT, "segfault": signal.SIGSEGV}


class Nemesis:
    """Strikes a worker of ``loader`` now and then, while the block runs.

    Args:
        loader: A loader that was started.
        every_s: Between two strikes pass from so many to so many seconds.
        faults: What a strike is, each time one of these: "kill", "stop", "abort", "segfault".
        seed: Decides when, whom and how; the same seed strikes alike.

    Example:
        >>> with Nemesis(loader, every_s=(0.05, 0.1), seed=1) as nemesis:  # doctest: +SKIP
        ...     found = record(loader, epochs=3)
        >>> nemesis.strikes  # doctest: +SKIP
        41
    """

    def __init__(
        self,
        loader: SwiftLoader,
        every_s: tuple[float, float] = (0.1, 0.3),
        faults: Sequence[str] = ("kill",),
        seed: int = 0,
    ) -> None:
        self.strikes = 0
        """How many there were."""
        self._loader = loader
        self._every_s = every_s
        self._signals = [_SIGNALS[fault] for fault in faults]
        self._chance = random.Random(seed)  # noqa: S311 - chance that can be had again
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def strike(self, how_many: int = 1) -> int:
        """Strikes now; gives back how many workers it met, which are fewer where fewer live."""
        met = 0
        victims = self._loader.worker_pids
        for pid in self._chance.sample(victims, min(how_many, len(victims))):
            met += self._hit(pid, self._chance.choice(self._signals))
        self.strikes += met
        return met

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="swift-nemesis", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
            self._thread = None

    def _run(self) -> None:
        while not self._left.wait(timeout=self._chance.uniform(*self._every_s)):
            self.strike()

    def _hit(self, pid: int, number: signal.Signals) -> bool:
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                if pid in self._loader.worker_pids:  # still its own: the number cannot have become another's before
                    signal.pidfd_send_signal(fd, number)
                    return True
            finally:
                os.close(fd)
        return False
