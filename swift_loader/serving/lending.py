"""Large batches for clients on this machine: instead of bytes they are sent the memory that these lie in, to copy from.

    server -> client   LENT, and a descriptor of the slot     the slot is held
    client -> server   COPIED                                 the slot is let go of
    server -> client   WHOLE                                  the client has a batch

The third word is needed since a connection may be given up while the client, slow or stopped, still copies out of a
slot that is then filled anew: what it has copied counts only if this connection held the slot until it had.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from swift_loader.errors import ProtocolError
from swift_loader.net.link import LinkLost

if TYPE_CHECKING:
    from swift_loader.net.doorman import Guest
    from swift_loader.orders.tickets import Full

#: What is smaller is copied by the kernel sooner than three words are said.
LEAST_NBYTES = 1 << 20
#: The client copies one while it hears of the next.
_MOST_LENT = 2


class Lending:
    """What one connection has lent."""

    def __init__(self, guest: Guest) -> None:
        self._link = guest.link
        self._is_possible = guest.hello.takes_files and guest.link.socket.family == socket.AF_UNIX
        self._lent: dict[int, Full] = {}
        self._changed = threading.Condition()
        self._is_over = False

    def suits(self, delivery: Full) -> bool:
        """Whether this batch is better lent than sent."""
        return self._is_possible and delivery.parcel.nbytes >= LEAST_NBYTES

    def lend(self, seq: int, delivery: Full, patience_s: float) -> None:
        """Holds a batch until it was copied; waits for so long that there are not too many.

        Raises:
            LinkLost: if there are.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_over or len(self._lent) < _MOST_LENT, patience_s):
                raise LinkLost(f"{self._link.peer} has copied nothing for {patience_s:g} s")
            if self._is_over:
                raise LinkLost("the connection is over")
            self._lent[seq] = delivery

    def copied(self, seq: int) -> None:
        """The client has all of it.

        Raises:
            ProtocolError: if it was lent none of that number.
        """
        with self._changed:
            if self._lent.pop(seq, None) is None:
                raise ProtocolError(f"batch {seq} was copied, which was not lent")
            self._changed.notify()

    def end(self) -> None:
        """The connection is over: nothing counts any more of what is copied now."""
        with self._changed:
            self._is_over = True
            self._lent.clear()
            self._changed.notify()
