"""Where in the fetcher's memory what it has fetched lies: a page that it writes, and those who read from it look at.

A cell tells of one stretch of an object. It has a number that is another one each time it tells of something else, and
0 while it tells of nothing. Who copies bytes looks at the number afterwards: if it is the same, the bytes were what the
cell had told, though nobody was asked and nothing was locked.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from swift_loader.host.mapping import Bytes

CELLS = 2048
#: So many stretches are asked for at a time, at most: those who wait for as many do not wait for each other's cells.
AT_ONCE = CELLS // 2
_COLUMNS = 5
NBYTES = CELLS * _COLUMNS * 8


class Stretch(NamedTuple):
    """What a cell told."""

    cell: int
    generation: int
    begin: int
    end: int
    """In the object."""
    offset: int
    """Where its bytes lie in the memory."""


class Page:
    """The cells, in columns."""

    def __init__(self, memory: Any) -> None:
        columns = np.frombuffer(memory, np.uint64, CELLS * _COLUMNS).reshape(_COLUMNS, CELLS)
        self.generation, self.key, self.begin, self.end, self.offset = columns

    def of(self, key: int) -> list[Stretch]:
        """What there is of an object."""
        cells = np.flatnonzero(self.key == np.uint64(key))
        before = self.generation[cells]
        rows = zip(
            cells.tolist(), before.tolist(), self.begin[cells].tolist(), self.end[cells].tolist(),
            self.offset[cells].tolist(), strict=True,
        )  # fmt: skip
        after = self.generation[cells].tolist()
        return [Stretch(*row) for row, now in zip(rows, after, strict=True) if row[1] and row[1] == now]

    def tell(self, stretch: Stretch, key: int) -> None:
        """Only the fetcher writes: last of all the number, by which the cell begins to tell."""
        cell = stretch.cell
        self.generation[cell] = 0
        self.key[cell], self.begin[cell], self.end[cell] = key, stretch.begin, stretch.end
        self.offset[cell] = stretch.offset
        self.generation[cell] = stretch.generation

    def forget(self, cell: int) -> None:
        """From now on it tells of nothing: before its bytes are written over."""
        self.generation[cell] = 0


class Arena:
    """The fetcher's memory, and the page, as one who reads has them: mapped, and not to be written."""

    def __init__(self, arena_fd: int, page_fd: int) -> None:
        self.page = Page(mmap.mmap(page_fd, NBYTES, prot=mmap.PROT_READ))
        self._data: Bytes = np.frombuffer(mmap.mmap(arena_fd, 0, prot=mmap.PROT_READ), np.uint8)

    def copy(self, stretch: Stretch, begin: int, target: Any) -> bool:
        """Fills ``target`` with the object's bytes from ``begin`` on; whether they were there until the end."""
        at = stretch.offset + begin - stretch.begin
        target[...] = self._data[at : at + target.nbytes]
        return bool(self.page.generation[stretch.cell] == stretch.generation)
