"""The thread that starts a pool's workers, so that whoever serves living ones never waits for a start.

A start asks the fork server, which may be stopped, or build a shared dataset again; or it makes an interpreter, on a
machine that is out of memory. What has been started goes to the telecom thread that serves the line.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from swift_loader.errors import WorkerStartFailed
from swift_loader.pool.limits import begin

if TYPE_CHECKING:
    from swift_loader.pool.launch import Launcher
    from swift_loader.pool.line import Line
    from swift_loader.pool.pool import Pool
    from swift_loader.pool.process import Started
    from swift_loader.pool.telecom import Telecom


class Starter:
    """Starts workers one after the other."""

    def __init__(self, name: str, launcher: Launcher, pool: Pool) -> None:
        self._launcher = launcher
        self._pool = pool
        self._wanted: SimpleQueue[tuple[Line, Telecom] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins to start workers; counts as serving until the thread ends."""
        begin(self._thread)

    def want(self, line: Line, telecom: Telecom) -> None:
        """A worker for ``line`` is to be started, and given to ``telecom``."""
        self._wanted.put((line, telecom))

    def ring(self) -> None:
        """All is about to end; takes no lock."""
        self._wanted.put(None)

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread's end; says whether it came."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._pool.closing:
                if (wanted := self._wanted.get()) is not None:
                    line, telecom = wanted
                    telecom.was_started(line, self._launched(line))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the consumer must hear of it
            self._pool.broke(error)
        finally:
            self._pool.one_left()

    def _launched(self, line: Line) -> Started | float | None:
        """A worker, or after how long to ask again for one that the system refuses now."""
        try:
            return self._launcher.launch(line)
        except WorkerStartFailed as error:
            return self._pool.refused(line, error)
