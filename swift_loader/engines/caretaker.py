"""Keeps a server of a trainer's job on another host: starts its process, and another where that has gone.

Knows nothing of how it came to be on that host. The server is tied to this process, as a worker is to a trainer.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

from swift_loader.engines.lifeline import Ends, ends, is_readable
from swift_loader.engines.placed import Placed, Placing
from swift_loader.engines.server import interpreter, pidfd_of, status_of
from swift_loader.errors import FailureReport, WorkerStartFailed
from swift_loader.host.memfile import memory_file
from swift_loader.host.writing import write_all
from swift_loader.pool.failures import ending
from swift_loader.wire import messages

#: Named, since it stands in a room above: it runs in the process that is started here.
_LIFE = "from swift_loader.serving import group; group.main({}, {})"
_END_S = 1.0


class Caretaker:
    """Of one server.

    Args:
        placing: All else that it is told.
        name: What its process is called.
    """

    def __init__(self, placing: Placing, name: str) -> None:
        self._placing = placing
        self._name = name
        self._ends: Ends | None = None
        self._pidfd = -1
        self._placed = Placed()

    def placed(self, payload: bytes | memoryview) -> Placed:
        """Where the server is found, once its workers have built their dataset; or why it is not.

        Args:
            payload: What holds the recipe.
        """
        if self._ends is None or is_readable(self._pidfd, 0.0):
            self.end()
            try:
                self._placed = self._started(payload)
            except Exception as error:  # noqa: BLE001 - told where somebody reads it
                self._placed = Placed(report=FailureReport.of(error, "start workers on the cluster"))
        if self._placed.report is not None:
            self.end()
        return self._placed

    def end(self) -> None:
        """Ends the server with all that it has started; may be called twice."""
        made, self._ends = self._ends, None
        if made is None:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        made.lifeline.cut()
        made.ours.close()
        is_readable(self._pidfd, _END_S)
        status_of(self._pidfd)
        os.close(self._pidfd)

    def _started(self, payload: bytes | memoryview) -> Placed:
        hash_seed = self._placing.surroundings.hash_seed
        if hash_seed is not None:
            os.environ["PYTHONHASHSEED"] = hash_seed
        with ends() as made:
            self._pidfd = pidfd_of(interpreter(_LIFE, made.fds, self._name))
        self._ends = made
        payload_fd = memory_file("swift-payload")
        try:
            write_all(payload_fd, payload)
            made.ours.send(messages.write_pickled(messages.SETUP, self._placing), [payload_fd])
        finally:
            os.close(payload_fd)
        poll = select.poll()
        poll.register(made.ours.fileno(), select.POLLIN)
        poll.register(self._pidfd, select.POLLIN)
        poll.poll()  # for as long as a dataset takes to build
        received = made.ours.receive()
        if received is None or not received[0]:
            is_readable(self._pidfd, _END_S)
            how = ending(status_of(self._pidfd))
            raise WorkerStartFailed(f"the server of {self._name} {how} as it started; the actor's log tells more")
        said: Placed = messages.read_pickled(received[0])
        return said
