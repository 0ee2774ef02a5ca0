"""A client's session with a server of streams: connected, lost, connected again, until it is closed."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any, NoReturn

from swift_loader.errors import DataError, PeerLost, ProtocolError, ProtocolMismatch, RemoteTraceback
from swift_loader.host.warn import warn_user
from swift_loader.net import arrays, schema
from swift_loader.net.address import Address
from swift_loader.net.dial import dial
from swift_loader.net.frames import (
    BATCH,
    BEAT,
    BEGIN,
    BYE,
    END,
    FAILURE,
    GOT,
    Limits,
    acknowledged_together,
)
from swift_loader.net.greeting import Attempts, Refusal, greeted
from swift_loader.net.keys import Key
from swift_loader.net.link import SILENCE_S, Link, LinkLost, LinkRefused
from swift_loader.net.receiver import Frame, Receiver

#: More than this in one batch is no batch. Memory is taken only as bytes come.
_LIMITS = Limits(1 << 20, 1 << 36)
_FIRST_PAUSE_S = 0.02
#: For so long may connections be closed before the server has said a word; a proxy may wait for its server so.
_CLOSED_FOR_S = 20.0
_TOGETHER_NBYTES = 1 << 20
_ITEMS = (BATCH, END, FAILURE)


class Remote:
    """One session.

    Args:
        address: Where the server listens.
        key: What it must show, and is shown; None on this machine.
        hwm: How many batches it may make ahead.
        wait_s: How long a server is waited for that does not answer.
    """

    def __init__(self, address: Address, key: Key | None, hwm: int, wait_s: float) -> None:
        self._address = address
        self._key = key
        self._hwm = hwm
        self._wait_s = wait_s
        self._session = b""
        self._received = 0
        """The last item that was handed out,"""
        self._told = 0
        """the last that the server knows of,"""
        self._last = 0
        """and the last that has arrived."""
        self._arrived: deque[Frame] = deque()
        self._link: Link | None = None
        self._receiver: Receiver | None = None
        self._epoch = 0
        self._step = 0

    def batch(self, epoch: int) -> tuple[Any, ...]:
        """The next batch of this epoch; StopIteration at its end.

        Raises:
            PeerLost: if the server does not answer, or has forgotten the session.
            ProtocolError: if it says what it cannot mean.
            DataError: if the stream has raised there.
        """
        if epoch != self._epoch:
            self._epoch, self._step = epoch, 0
            self._say(BEGIN, epoch)
        try:
            return self._taken(epoch)
        except KeyboardInterrupt:  # in the middle of a frame, it may be: what has not arrived comes anew
            self._drop()
            raise

    def _taken(self, epoch: int) -> tuple[Any, ...]:
        while True:
            self._acknowledge()
            frame = self._item()
            said = self._said(frame)
            is_ours = (said.epoch, said.step) == (epoch, self._step)
            if said.epoch >= epoch and not is_ours and not (frame.kind == FAILURE and said.leaves):
                raise self._wrong(f"it sent batch {said.step} of epoch {said.epoch}")
            self._received = frame.seq
            if frame.kind == FAILURE and (is_ours or said.leaves):
                self._raise(said)
            if is_ours and frame.kind == END:
                raise StopIteration
            if is_ours:
                self._step += 1
                return self._arrays(said, frame)

    def _acknowledge(self) -> None:
        """What was received and not yet said so, the server still holds: so it is said now and then."""
        if self._received - self._told >= acknowledged_together(self._hwm):
            self._told = self._received
            self._say(GOT, self._received)

    def _said(self, frame: Frame) -> Any:
        try:
            return schema.read(_SCHEMAS[frame.kind], frame.meta)
        except ProtocolError as error:
            raise self._wrong(str(error)) from error

    def _arrays(self, said: schema.Batch, frame: Frame) -> tuple[Any, ...]:
        try:
            return tuple(arrays.taken(schema.described(said), frame.bulk))
        except ProtocolError as error:
            raise self._wrong(str(error)) from error

    def close(self) -> None:
        """Says that the session is over."""
        if self._link is not None:
            with contextlib.suppress(LinkLost):
                self._link.say(BYE)
            self._link.close()
            self._link = None

    def forget(self) -> None:
        """In a fork: the connection stays the parent's."""
        if self._link is not None:
            self._link.close()  # this process's descriptor; says nothing, since TLS says its goodbye elsewhere

    def _item(self) -> Frame:
        """The next frame that is an item, over as many connections as it takes."""
        while not self._arrived:
            receiver = self._connected()
            try:
                self._keep(receiver.wait(SILENCE_S))
                self._keep_what_is_there(receiver)
            except LinkLost:
                self._drop()
            except ProtocolError as error:
                raise self._wrong(str(error)) from error
        return self._arrived.popleft()

    def _keep_what_is_there(self, receiver: Receiver) -> None:
        """Several at once cost little more than one, and there are never more than the server may send ahead."""
        nbytes = 0
        while nbytes < _TOGETHER_NBYTES and (frame := receiver.read()) is not None:
            self._keep(frame)
            nbytes += frame.bulk.nbytes

    def _keep(self, frame: Frame) -> None:
        if frame.kind == BEAT:
            return
        if frame.kind not in _ITEMS or frame.seq != self._last + 1:
            raise ProtocolError(f"it sent a frame of kind {frame.kind}, number {frame.seq} after {self._last}")
        self._arrived.append(frame)
        self._last = frame.seq

    def _say(self, kind: int, seq: int) -> None:
        """Says it if there is a connection; one that is made later begins with all that it needs to know."""
        if self._link is None:
            return
        try:
            self._link.say(kind, seq=seq)
        except LinkLost:
            self._drop()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = self._receiver = None

    def _connected(self) -> Receiver:
        if self._receiver is None:
            self._receiver = self._connect()
        return self._receiver

    def _connect(self) -> Receiver:
        attempts = Attempts(_FIRST_PAUSE_S)
        while True:
            try:
                return self._greeted(dial(self._address, self._key))
            except LinkRefused as error:
                if attempts.is_refused():
                    raise self._lost(f"does not let this client in: {error}. Both must have the same key") from error
                continue
            except ProtocolError as error:
                raise self._wrong(str(error)) from error
            except LinkLost as error:
                why = str(error)
            waited_s = attempts.waited_s
            is_closed = "closed" in why or "reset" in why
            if is_closed and waited_s > _CLOSED_FOR_S and not self._session:
                raise self._lost(
                    "closes each connection before it has said a word: it wants a key, or another one, or is something "
                    "else"
                )
            if waited_s > self._wait_s:
                raise self._lost(f"has not answered for {waited_s:.0f} s: {why}")
            if attempts.is_to_be_told():
                warn_user(f"the server at {self._address} does not answer ({why}); it is tried for {self._wait_s:g} s")
            attempts.pause()

    def _greeted(self, link: Link) -> Receiver:
        try:
            hello = schema.hello("stream", session=self._session, received=self._last, hwm=self._hwm)
            receiver, welcome = greeted(link, hello, _LIMITS)
            self._session = welcome.session
            link.say(BEGIN, seq=self._epoch)
        except Refusal as refusal:
            link.close()
            self._refused(refusal)
        except BaseException:
            link.close()
            raise
        self._link = link
        return receiver

    def _refused(self, refusal: Refusal) -> NoReturn:
        if refusal.why == "version":
            error = ProtocolMismatch(f"{self._address}: {refusal}")
            error.peer = str(self._address)
            raise error
        raise self._lost(f"says: {refusal}")

    def _raise(self, said: schema.Failure) -> NoReturn:
        error = DataError(
            f"the stream at {self._address} raised in batch {self._step} of epoch {self._epoch}: {said.type_name}: "
            f"{said.text}"
        )
        error.epoch, error.step, error.stage = self._epoch, self._step, said.stage
        self._step += 1  # what the stream gives after it comes next
        raise error from RemoteTraceback(said.traceback or said.text)

    def _lost(self, what: str) -> PeerLost:
        self._drop()
        error = PeerLost(f"the server at {self._address} {what} (batch {self._step} of epoch {self._epoch} was next)")
        error.peer, error.epoch, error.step = str(self._address), self._epoch, self._step
        return error

    def _wrong(self, what: str) -> ProtocolError:
        self._drop()
        error = ProtocolError(
            f"what came from {self._address} is not what a server says: {what} (batch {self._step} of epoch "
            f"{self._epoch} was next)"
        )
        error.peer, error.epoch, error.step = str(self._address), self._epoch, self._step
        return error


_SCHEMAS: dict[int, Any] = {BATCH: schema.Batch, END: schema.End, FAILURE: schema.Failure}
