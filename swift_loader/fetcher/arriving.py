"""Bytes of an object on their way to where they are wanted: what has come stays, whatever becomes of its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.stores.answers import Kind, Trouble
from swift_loader.stores.obstore import Answer, Failed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class Arriving:
    """Some bytes of an object. Requests for what is missing of them begin behind what is there without a gap.

    Args:
        name: Of the object.
        begin: The first byte.
        end: Behind the last one; None: all of the object.
        etag: What the object must be still.
        into: Where they are put; None: into memory of their own.
    """

    def __init__(self, name: str, begin: int, end: int | None, etag: str | None, into: Any = None) -> None:
        self.name, self.begin, self.end = name, begin, end
        self.covered = begin
        """So far nothing is missing."""
        self.etag = etag
        self.nbytes = 0
        """Of the whole object."""
        self.data: Any = into if into is not None or end is None else np.empty(end - begin, np.uint8)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is there."""
        return self.covered == self.end

    def begun(self, answer: Answer, asked_at: int) -> None:
        """Looks at what a store begins to send; raises `Failed` where that is something else than was asked for."""
        if self.etag is not None and answer.etag is not None and answer.etag != self.etag:
            raise Failed(Trouble(Kind.CHANGED, None))
        if self.end is None:
            self.end = answer.nbytes
            self.data = np.empty(self.end - self.begin, np.uint8)
        if answer.nbytes < self.end:
            raise Failed(Trouble(Kind.CHANGED, None))
        if answer.begin != asked_at:
            raise Failed(Trouble(Kind.ODD, None))
        self.etag, self.nbytes = answer.etag, answer.nbytes

    def put(self, at: int, piece: Buffer) -> int:
        """Puts what has come to its place; where the next piece belongs."""
        assert self.end is not None
        source = np.frombuffer(memoryview(piece), np.uint8)
        end: int = at + source.nbytes
        if end > self.end:
            raise Failed(Trouble(Kind.ODD, None))
        self.data[at - self.begin : end - self.begin] = source
        self.covered = max(self.covered, end)
        return end
