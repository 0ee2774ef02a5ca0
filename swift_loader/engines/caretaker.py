"""Keeps a server of a trainer's job on another host: starts its process, and another where that has gone.

Knows nothing of how it came to be on that host. The server is tied to this process, as a worker is to a trainer.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING

from swift_loader.engines.interpreter import interpreter, pidfd_of, status_of
from swift_loader.engines.lifeline import Ends, ends, is_readable

if TYPE_CHECKING:
    from swift_loader.engines.figures import Figures, FiguresPage
    from swift_loader.engines.placed import Placed

#: Named, since it stands in a room above: it runs in the process that is started here.
_LIFE = "from swift_loader.serving import group; group.main({}, {})"
_END_S = 1.0


class Caretaker:
    """Of one server. What else it is made of is imported while the server's process comes to life.

    Args:
        name: What its process is called.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._hash_seed: str | None = None
        self._ends: Ends | None = None
        self._pidfd = -1
        self._placed: Placed | None = None
        self._page: FiguresPage | None = None
        self._before: Figures | None = None
        """What servers had done that are gone."""

    def begin(self) -> None:
        """Starts the process, and waits for nothing: what cannot be started is told by who is asked where it is."""
        with contextlib.suppress(Exception):
            self._start()

    def placed(
        self, spot: tuple[str, bool], placing: bytes, hash_seed: str | None, payload: bytes | memoryview
    ) -> Placed:
        """Where the server is found, once its workers have built their dataset; or why it is not.

        Args:
            spot: Where it is to listen, and whether it is in a folder that was made for this job.
            placing: What else it is told, as a message.
            hash_seed: By which its interpreter is to hash text.
            payload: What holds the recipe.
        """
        from swift_loader.engines.placed import Placed  # noqa: PLC0415 - see above
        from swift_loader.errors import FailureReport  # noqa: PLC0415

        if self._ends is None or is_readable(self._pidfd, 0.0) or hash_seed != self._hash_seed:
            self.end()
        self._hash_seed = hash_seed
        if self._placed is None:
            try:
                self._placed = self._greeted(spot, placing, payload)
            except Exception as error:  # noqa: BLE001 - told where somebody reads it
                self._placed = Placed(report=FailureReport.of(error, "start workers on the cluster"))
        placed = self._placed
        if placed.report is not None:
            self.end()
        return placed

    def figures(self) -> Figures | None:
        """What all its servers have done. Called by any thread."""
        page, before = self._page, self._before
        if page is None:
            return before
        now = page.read()
        return now if before is None else now.after(before)

    def end(self) -> None:
        """Ends the server with all that it has started; may be called twice."""
        self._placed = None
        self._before, self._page = self.figures(), None
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

    def _start(self) -> Ends:
        if self._hash_seed is not None:
            os.environ["PYTHONHASHSEED"] = self._hash_seed
        with ends() as made:
            self._pidfd = pidfd_of(interpreter(_LIFE, made.fds, self._name))
        self._ends = made
        return made

    def _greeted(self, spot: tuple[str, bool], placing: bytes, payload: bytes | memoryview) -> Placed:
        from swift_loader.engines.figures import FiguresPage  # noqa: PLC0415 - see above
        from swift_loader.errors import WorkerStartFailed  # noqa: PLC0415
        from swift_loader.host.memfile import memory_file  # noqa: PLC0415
        from swift_loader.host.writing import write_all  # noqa: PLC0415
        from swift_loader.pool.failures import ending  # noqa: PLC0415
        from swift_loader.wire import messages  # noqa: PLC0415

        made = self._ends or self._start()
        page, payload_fd = FiguresPage.create(), memory_file("swift-payload")
        try:
            write_all(payload_fd, payload)
            made.ours.send(messages.write_pickled(messages.HELLO, spot), [page.fd])
            made.ours.send(placing, [payload_fd])
        finally:
            os.close(payload_fd)
            page.close()
        self._page = page
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
