"""Frames out of a connection: what is small through one buffer, what is large straight to its place."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from swift_loader.net.frames import HEAD, Head, Limits, read_head
from swift_loader.net.link import SILENCE_S, Link, LinkLost

_BUFFER_NBYTES = 64 * 1024
SMALL_BUFFER_NBYTES = 4096
"""For who is sent a few words now and then: a server has a buffer for each who comes, strangers too."""
#: What is shorter than this is copied out of the buffer rather than asked for by itself.
_SHORT_NBYTES = 16 * 1024

#: Where the bulk of a frame is to lie, once its meta part is there.
Place = Callable[[Head, memoryview], memoryview]


@dataclass(slots=True)
class Frame:
    """One frame that has come whole."""

    kind: int
    seq: int
    meta: memoryview
    bulk: memoryview


def fresh(head: Head, _meta: memoryview) -> memoryview:
    """Memory of its own for each; pages are taken only as bytes come."""
    return np.empty(head.bulk_nbytes, np.uint8).data if head.bulk_nbytes else memoryview(b"")


class Receiver:
    """Reads the frames of one connection.

    Args:
        link: The connection.
        limits: How long a frame's parts may be; may be widened once it is known who is there.
        place: Where bulks are to lie.
        buffer_nbytes: So much of what is small is read at once.
    """

    def __init__(self, link: Link, limits: Limits, place: Place = fresh, buffer_nbytes: int = _BUFFER_NBYTES) -> None:
        self.limits = limits
        self._link = link
        self._place = place
        self._buffer = memoryview(bytearray(buffer_nbytes))
        self._begin = self._end = 0
        self._head: Head | None = None
        self._meta: memoryview | None = None
        self._bulk: memoryview | None = None
        self._filled = 0
        """Of the part that comes now."""

    @property
    def is_amid(self) -> bool:
        """Whether a part of a frame has come, and not all of it."""
        return self._head is not None or self._end > self._begin

    def read(self) -> Frame | None:
        """The next frame if all of it is there; waits for nothing.

        Raises:
            LinkLost: if no more can come.
            ProtocolError: if what came is no frame.
        """
        if self._head is None:
            if not self._have(HEAD.size):
                return None
            self._head = read_head(self._buffer[self._begin : self._end], self.limits)
            self._begin += HEAD.size
        if self._meta is None:
            self._meta = self._meta_room(self._head)
        if self._bulk is None:
            if not self._fill(self._meta):
                return None
            self._filled = 0
            self._bulk = self._place(self._head, self._meta)
        if not self._fill(self._bulk):
            return None
        frame = Frame(self._head.kind, self._head.seq, self._meta, self._bulk)
        self._head = self._meta = self._bulk = None
        self._filled = 0
        return frame

    def wait(self, silent_s: float = SILENCE_S) -> Frame:
        """The next frame, waited for as long as something comes at least each ``silent_s``.

        Raises:
            LinkLost: if nothing does.
            ProtocolError: if what came is no frame.
        """
        while (frame := self.read()) is None:
            if not self._link.wait(select.POLLIN, silent_s):
                raise LinkLost(f"{self._link.peer} has said nothing for {silent_s:g} s")
        return frame

    def _meta_room(self, head: Head) -> memoryview:
        self._filled = 0
        return memoryview(bytearray(head.meta_nbytes))

    def _have(self, nbytes: int) -> bool:
        """Whether so many bytes are in the buffer."""
        while self._end - self._begin < nbytes:
            if self._begin == self._end:
                self._begin = self._end = 0
            elif len(self._buffer) - self._begin < nbytes:
                rest = bytes(self._buffer[self._begin : self._end])
                self._begin, self._end = 0, len(rest)
                self._buffer[: len(rest)] = rest
            count = self._link.receive_some(self._buffer[self._end :])
            if count == 0:
                return False
            self._end += count
        return True

    def _fill(self, part: memoryview) -> bool:
        """Whether all of this part is there."""
        while self._filled < part.nbytes:
            waiting = min(self._end - self._begin, part.nbytes - self._filled)
            if waiting:
                part[self._filled : self._filled + waiting] = self._buffer[self._begin : self._begin + waiting]
                self._begin += waiting
                self._filled += waiting
            elif part.nbytes - self._filled < _SHORT_NBYTES:
                if not self._have(1):
                    return False
            else:
                count = self._link.receive_some(part[self._filled :])
                if count == 0:
                    return False
                self._filled += count
        return True
