"""One client's stream, as the server's process sees it: what its producer gives, until the client has it.

A session outlives its connections. What was sent stays until the client says that it has it, so a client that comes
back is sent the rest. The session's thread waits for three at once: the producer, the client, and a bell by which the
door hands it a connection.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

from swift_loader.errors import ProtocolError
from swift_loader.host.bell import Bell
from swift_loader.net import schema
from swift_loader.net.doorman import Guest
from swift_loader.net.frames import (
    BATCH,
    BEAT,
    BEGIN,
    BYE,
    END,
    FAILURE,
    GOT,
    LARGEST,
    TALK,
    WELCOME,
    Limits,
    write_head,
)
from swift_loader.net.link import BEAT_S, Link, LinkLost
from swift_loader.net.receiver import Frame, Receiver
from swift_loader.streams.window import Item, Window

KEPT_S = 600.0
"""How long a session waits for a client that has lost its connection."""
_FROM_PRODUCER = Limits(TALK.meta_nbytes, LARGEST)
_KINDS: dict[int, type[schema.Batch | schema.End | schema.Failure]] = {
    BATCH: schema.Batch, END: schema.End, FAILURE: schema.Failure,
}  # fmt: skip


class Session:
    """One client's stream.

    Args:
        number: What the server calls it.
        producer: The connection to the child that runs it.
        hwm: How many batches are made ahead of the client.
        on_end: Called with the number when it is over.
        may_stay: Whether a client with this certificate is still let in.
        server_has_gone: Whether the server has ended, and this process is about to.
    """

    def __init__(
        self,
        number: int,
        producer: Link,
        hwm: int,
        on_end: Callable[[int], None],
        may_stay: Callable[[bytes | None], bool],
        server_has_gone: Callable[[], bool],
    ) -> None:
        self.number = number
        self.ident = os.urandom(16)
        self.certificate: bytes | None = None
        """The key that it belongs to, once it has a client."""
        self.lost_s: float | None = None
        """Since when it has had no connection; None where it has one, or has not had any yet."""
        self._producer: Link | None = producer
        self._given = Receiver(producer, _FROM_PRODUCER)
        self._window = Window(hwm)
        self._on_end = on_end
        self._may_stay = may_stay
        self._server_has_gone = server_has_gone
        self._epoch = 0
        self._out: deque[memoryview] = deque()
        self._guest: Guest | None = None
        self._arriving: deque[Guest] = deque()
        self._bell = Bell()
        self._is_over = False
        self._said_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"swift-session-{number}", daemon=True)
        self._thread.start()

    def attach(self, guest: Guest) -> None:
        """Hands it a connection of its client; takes the place of the one that it may still have."""
        self._arriving.append(guest)
        self._bell.ring()

    def end(self) -> None:
        """Its client is not waited for any longer."""
        self._is_over = True
        self._bell.ring()

    def wait(self, timeout_s: float) -> None:
        """Until it has ended."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._turn()
        finally:
            self._let_go_of_guest()
            if self._producer is not None:
                self._producer.close()
            while self._arriving:
                self._arriving.popleft().link.close()
            self._on_end(self.number)

    def _turn(self) -> None:
        self._wait()
        self._bell.hush()
        while self._arriving:
            self._welcome(self._arriving.popleft())
        self._take_from_producer()
        try:
            self._hear_guest()
            self._send()
        except (LinkLost, ProtocolError):
            self._let_go_of_guest()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._bell.fd, select.POLLIN)
        if self._producer is not None and self._window.has_room():
            poll.register(self._producer, select.POLLIN)
        if self._guest is not None:
            has_more = bool(self._out) or self._window.may_send()
            poll.register(self._guest.link, select.POLLIN | (select.POLLOUT if has_more else 0))
        poll.poll(BEAT_S * 1000)

    # ---- the producer

    def _take_from_producer(self) -> None:
        try:
            while self._producer is not None and self._window.has_room() and (frame := self._given.read()) is not None:
                self._keep(frame)
        except LinkLost:
            self._lose_producer()

    def _keep(self, frame: Frame) -> None:
        epoch = schema.read(_KINDS[frame.kind], frame.meta).epoch
        if epoch >= self._epoch:
            self._window.ready.append(Item(frame.kind, epoch, frame.meta, frame.bulk))

    def _lose_producer(self) -> None:
        assert self._producer is not None
        self._producer.close()
        self._producer = None
        if self._server_has_gone():
            self._is_over = True
            return
        said = schema.Failure(
            self._epoch, 0, "stream", "WorkerDied", "the process that ran this client's stream has ended: it crashed, "
            "or was killed. The server's own output may say more", "", None, leaves=True,
        )  # fmt: skip
        self._window.ready.append(Item(FAILURE, self._epoch, schema.write(said), memoryview(b"")))

    # ---- the client

    def _welcome(self, guest: Guest) -> None:
        self._let_go_of_guest()
        self._guest, self.lost_s = guest, None
        guest.receiver.limits = TALK
        self._window.hwm = min(self._window.hwm, guest.hello.hwm or self._window.hwm)
        self._window.forget_until(guest.hello.received)
        self._out.clear()
        version = schema.common_version(guest.hello)
        assert version is not None
        meta = schema.write(schema.Welcome(version, schema.PACKAGE, self.ident))
        self._out.append(memoryview(write_head(WELCOME, len(meta)) + meta))
        for item in self._window.sent:  # all of it anew: what of it was underway has gone with the connection
            self._out.extend(item.parts())

    def _hear_guest(self) -> None:
        while self._guest is not None and (frame := self._guest.receiver.read()) is not None:
            if frame.kind == GOT:
                self._window.forget_until(frame.seq)
            elif frame.kind == BEGIN:
                self._begin(frame.seq)
            elif frame.kind == BYE:
                self._is_over = True
                return
            elif frame.kind != BEAT:
                raise ProtocolError(f"a frame of kind {frame.kind} from a stream's client")

    def _begin(self, epoch: int) -> None:
        """The client is at this epoch: what was left of those before it is not sent any more."""
        if epoch <= self._epoch:
            return
        self._epoch = epoch
        self._window.forget_before(epoch)
        if self._producer is not None:
            with contextlib.suppress(LinkLost):  # it is seen where its batches are taken
                self._producer.say(BEGIN, seq=epoch)

    def _send(self) -> None:
        guest = self._guest
        if guest is None:
            return
        while self._out or self._window.may_send():
            if not self._out:
                self._out.extend(self._window.send().parts())
            if not self._out[0].nbytes:
                self._out.popleft()
            elif count := guest.link.send_some(self._out[0]):
                self._out[0] = self._out[0][count:]
                self._said_s = time.monotonic()
            else:
                return
        if time.monotonic() - self._said_s >= BEAT_S:
            self._beat(guest)

    def _beat(self, guest: Guest) -> None:
        if not self._may_stay(guest.certificate):
            raise LinkLost("its key was taken away")
        self._out.append(memoryview(write_head(BEAT)))
        self._said_s = time.monotonic()

    def _let_go_of_guest(self) -> None:
        if self._guest is not None:
            self._guest.link.close()
            self._guest, self.lost_s = None, time.monotonic()
            self._out.clear()
