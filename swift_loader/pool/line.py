"""All that the consumer knows of one worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swift_loader.pool import messages

if TYPE_CHECKING:
    from swift_loader.batch.layout import BatchSpec
    from swift_loader.pool.channel import Channel
    from swift_loader.pool.control import Cell
    from swift_loader.pool.messages import Order
    from swift_loader.pool.process import Process

#: Orders wait in a worker's channel for about this long, so that it has work while the consumer's Python is busy.
_QUEUED_NS = 20_000_000
#: But they reserve no more memory than this, if that is not a single slot: pages that are new cost more than they save.
_QUEUED_NBYTES = 64 << 20
_SMOOTHING = 0.2


class Line:
    """One worker, as its consumer sees it. A line outlives its worker: a replacement continues it."""

    def __init__(self, number: int, name: str, cell: Cell) -> None:
        self.number = number
        self.name = name
        self.cell = cell
        self.process: Process | None = None
        self.channel: Channel | None = None
        self.greeted = False
        """The worker has built its dataset and takes orders."""
        self.births = 0
        """Workers started in a row that died before they greeted."""
        self.outstanding: dict[int, Order] = {}
        """Orders that were not answered yet, oldest first."""
        self.unmerged = 0
        """Parcels of this worker that wait for earlier ones."""
        self.hungry = False
        """It could have taken an order and got none."""
        self.known: set[int] = set()
        """Slots that the worker has mapped."""
        self.specs: dict[int, BatchSpec] = {}
        self.killed_after_s = 0.0
        """We killed the worker, since it made no progress for so long."""
        self._batch_ns = 0.0
        self._place: tuple[int, ...] = ()
        self._still_s = 0.0

    def connect(self, process: Process, channel: Channel) -> None:
        """A worker was started for this line."""
        self.process, self.channel = process, channel
        self.greeted = False
        self.births += 1
        self.known.clear()
        self.specs.clear()
        self.killed_after_s = self._still_s = 0.0

    def disconnect(self) -> None:
        """Lets go of a worker that is gone."""
        if self.channel is not None:
            self.channel.close()
        if self.process is not None:
            self.process.close()
        self.channel = self.process = None
        self.greeted = False

    def took(self, nanoseconds: int) -> None:
        """A batch was made in this time."""
        self._batch_ns += _SMOOTHING * (nanoseconds - self._batch_ns) if self._batch_ns else nanoseconds

    def queue_depth(self, most: int, batch_nbytes: int) -> int:
        """How many orders should wait in the channel."""
        if batch_nbytes:
            most = min(most, max(1, _QUEUED_NBYTES // batch_nbytes))
        return max(1, min(most, int(_QUEUED_NS / self._batch_ns))) if self._batch_ns else 1

    @property
    def is_slow(self) -> bool:
        """Whether its batches take so long that orders should not wait behind one."""
        return self._batch_ns > _QUEUED_NS / 2

    def kill_if_still(self, seconds: float, timeout_s: float) -> None:
        """``seconds`` have passed; a worker that was at the same place for ``timeout_s`` is killed."""
        place = self.cell.place
        if place != self._place or not self.outstanding:
            self._place, self._still_s = place, 0.0
            return
        self._still_s += seconds
        if self._still_s >= timeout_s and self.process is not None and not self.killed_after_s:
            self.killed_after_s = self._still_s
            self.process.kill()

    def in_hand(self) -> Order | None:
        """The order that the worker is at: as it says itself, or the oldest."""
        for order in self.outstanding.values():
            return self.outstanding.get(self.cell.seq, order)
        return None

    def send(self, datagram: bytes, fds: Sequence[int] = ()) -> None:
        """Sends if there is somebody; a worker that has just died is seen by its sentinel."""
        if self.channel is None:
            return
        try:
            sent = self.channel.send(datagram, fds)
        except OSError:
            return
        if not sent:
            raise BufferError(f"{self.name} does not read its orders: {len(datagram)} bytes found no room")

    def retire(self) -> None:
        """Asks the worker to leave."""
        self.send(bytes((messages.RETIRE,)))

    def __repr__(self) -> str:
        state = "absent" if self.process is None else self.cell.stage if self.greeted else "starts"
        return f"<Line {self.name} {state}, {len(self.outstanding)} ordered, {self.unmerged} unmerged>"
