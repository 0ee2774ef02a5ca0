"""The page that a consumer shares with its workers: what each slot is ordered for, and how far each worker is.

A slot's word holds the number of the order that may fill it. The consumer takes an order back by clearing the word;
the worker looks at it before each sample, so it stops at once when an epoch is left. A worker's cell tells which
order and which row it is at: after a death it names the guilty sample, and it shows what hangs. All words are eight
bytes, written by one side only, so no lock is needed: each is read whole, old or new. Of several that belong together
the consumer may read some old and some new: it goes by whether a cell changes at all, and by the sample that it names
once its worker is dead or stands still.
"""

from __future__ import annotations

import mmap
import os

from swift_loader.host.memfile import memory_file

#: More slots than a consumer could ever need; their words are 32 KB.
MAX_SLOTS = 4096
_CELL_WORDS = 8
SEQ, ROW, INDEX, STAGE = range(4)
#: From here on a worker counts samples that are kept (`reuse.kept`): its replacement goes on counting.
_COUNTS = 4

#: Stages of a worker, as its cell tells them.
STAGES = ("waits", "starts", "builds the dataset", "fetches", "collates", "encodes", "sends")
WAITS, STARTS, BUILDS, FETCHES, COLLATES, ENCODES, SENDS = range(7)


class Control:
    """One process's view of the page."""

    def __init__(self, fd: int, worker_count: int) -> None:
        self.fd = fd
        self._mapping = mmap.mmap(fd, _nbytes(worker_count))
        words = memoryview(self._mapping).cast("Q")
        self.slot_words = words[:MAX_SLOTS]
        self._cells = words[MAX_SLOTS:].cast("B").cast("q")

    @classmethod
    def create(cls, worker_count: int) -> Control:
        """A new page; owns its descriptor."""
        fd = memory_file("swift-control")
        try:
            os.ftruncate(fd, _nbytes(worker_count))
            return cls(fd, worker_count)
        except BaseException:
            os.close(fd)
            raise

    def hide_from_children(self) -> None:
        """A child that this process forks has no view of the page, and cannot write to it."""
        self._mapping.madvise(mmap.MADV_DONTFORK)

    def word(self, slot: int) -> memoryview:
        """The word of one slot, as a view of one element."""
        return self.slot_words[slot : slot + 1]

    def cell(self, worker: int) -> Cell:
        """The progress cell of one worker."""
        start = worker * _CELL_WORDS
        return Cell(self._cells[start : start + _CELL_WORDS])

    def close(self) -> None:
        """Lets go of the descriptor; the mapping goes with the last view."""
        os.close(self.fd)


class Cell:
    """How far a worker is. Written by the worker, read by the consumer."""

    __slots__ = ("words",)

    def __init__(self, words: memoryview) -> None:
        self.words = words

    def enter(self, stage: int, seq: int = 0) -> None:
        """The worker begins something."""
        words = self.words
        words[SEQ], words[ROW], words[INDEX], words[STAGE] = seq, 0, -1, stage

    def at(self, row: int, index: int) -> None:
        """The worker turns to a sample."""
        self.words[ROW], self.words[INDEX] = row, index

    @property
    def counts(self) -> memoryview:
        """The words for the counts of samples that were made and reused, and of the bytes that are kept."""
        return self.words[_COUNTS:_CELL_WORDS]

    @property
    def seq(self) -> int:
        """The order in hand."""
        return int(self.words[SEQ])

    @property
    def index(self) -> int | None:
        """The sample in hand."""
        index = int(self.words[INDEX])
        return index if index >= 0 and self.words[STAGE] >= FETCHES else None

    @property
    def is_past_a_sample(self) -> bool:
        """Whether the worker is done with a sample of the order in hand."""
        return bool(self.words[STAGE] > FETCHES or (self.words[STAGE] == FETCHES and self.words[ROW] > 0))

    @property
    def can_be_asked(self) -> bool:
        """Whether the worker has come so far that a question does not kill it."""
        return bool(self.words[STAGE] != STARTS)

    @property
    def place(self) -> tuple[int, ...]:
        """Changes with every step of progress."""
        return tuple(self.words[: STAGE + 1])

    @property
    def stage(self) -> str:
        """What the worker is at, in words."""
        return STAGES[self.words[STAGE]]


def cell_words_of(fd: int, worker: int) -> memoryview:
    """A copy of one worker's cell, for those who only look."""
    nbytes = _CELL_WORDS * 8
    return memoryview(os.pread(fd, nbytes, (MAX_SLOTS + worker * _CELL_WORDS) * 8)).cast("q")


def _nbytes(worker_count: int) -> int:
    return (MAX_SLOTS + worker_count * _CELL_WORDS) * 8
