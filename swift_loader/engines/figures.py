"""What a server on a cluster has done: numbers on a page that it shares with who keeps it. Nobody waits for anybody."""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

from swift_loader.host.memfile import memory_file


class Figures(NamedTuple):
    """Of all its batches since it began, but for the last."""

    batches: int = 0
    made_ns: int = 0
    """What workers took for them, added up."""
    nbytes: int = 0
    waiting: int = 0
    """So many are asked for now, and not given."""

    def after(self, before: Figures) -> Figures:
        """Those of one server, and of another that was there before it."""
        made_ns, nbytes = self.made_ns + before.made_ns, self.nbytes + before.nbytes
        return Figures(self.batches + before.batches, made_ns, nbytes, self.waiting)


class FiguresPage:
    """One server's. Takes the descriptor over."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._words = memoryview(mmap.mmap(fd, mmap.PAGESIZE)).cast("q")

    @classmethod
    def create(cls) -> FiguresPage:
        """An empty one."""
        fd = memory_file("swift-figures")
        os.ftruncate(fd, mmap.PAGESIZE)
        return cls(fd)

    def write(self, figures: Figures) -> None:
        """By the server alone."""
        for place, number in enumerate(figures):
            self._words[place] = number

    def read(self) -> Figures:
        """Each number for itself may be a moment older than the others."""
        return Figures(*self._words[: len(Figures._fields)])

    def close(self) -> None:
        """Lets go of the descriptor."""
        os.close(self.fd)
