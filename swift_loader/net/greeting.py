"""The first words on a connection to a server, and coming back for them until they are answered."""

from __future__ import annotations

import random
import time

from swift_loader.errors import ProtocolError
from swift_loader.net import schema
from swift_loader.net.frames import HELLO, REFUSED, WELCOME, Limits
from swift_loader.net.link import SILENCE_S, Link
from swift_loader.net.receiver import Place, Receiver, fresh

_LONGEST_PAUSE_S = 1.0
_TOLD_AFTER_S = 5.0
_REFUSED_OFTEN = 3


class Refusal(Exception):
    """A server does not let us in, and has said why."""

    def __init__(self, said: schema.Refused) -> None:
        super().__init__(said.text)
        self.why = said.why


def greeted(link: Link, hello: bytes, limits: Limits, place: Place = fresh) -> tuple[Receiver, schema.Welcome]:
    """Says hello: what the server answers, and what the frames after that are read with.

    Raises:
        Refusal: if it does not let us in.
        LinkLost: if it does not answer.
        ProtocolError: if it is no such server.
    """
    link.say(HELLO, hello)
    receiver = Receiver(link, limits, place)
    frame = receiver.wait(SILENCE_S)
    if frame.kind == REFUSED:
        raise Refusal(schema.read(schema.Refused, frame.meta))
    if frame.kind != WELCOME:
        raise ProtocolError(f"{link.peer}: its first word is a frame of kind {frame.kind}")
    return receiver, schema.read(schema.Welcome, frame.meta)


class Attempts:
    """One that goes wrong is followed by another, after a pause that grows."""

    def __init__(self, first_pause_s: float) -> None:
        self._began_s = time.monotonic()
        self._pause_s = first_pause_s
        self._is_told = False
        self._refusals = 0

    @property
    def waited_s(self) -> float:
        """Since the first."""
        return time.monotonic() - self._began_s

    def is_to_be_told(self) -> bool:
        """Whether the user should hear of it now: once, after some seconds."""
        is_now = not self._is_told and self.waited_s > _TOLD_AFTER_S
        self._is_told = self._is_told or is_now
        return is_now

    def is_refused(self) -> bool:
        """It was refused once more: whether that is how it is. What was changed on its way is refused by chance."""
        self._refusals += 1
        return self._refusals >= _REFUSED_OFTEN

    def pause(self) -> None:
        """Until the next."""
        time.sleep(self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - so that not all come at once
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
