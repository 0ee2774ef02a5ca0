"""Where a batch is made: what its maker asks of the slot, or of the memory that stands for one."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from swift_loader.errors import NoRoom


class Wanted:
    """Whether an order is still valid: whether its slot's word holds its number.

    The consumer writes another number there as soon as it wants the batch no more, at any time.
    """

    __slots__ = ("seq", "word")

    def __init__(self, word: Any, seq: int) -> None:
        self.word, self.seq = word, seq

    def __bool__(self) -> bool:
        return bool(self.word[0] == self.seq)


class Memory(Protocol):
    """The part of a slot that a batch is written to."""

    memory: Any
    nbytes: int
    views: dict[Any, Any]


class Berth(Protocol):
    """The place where a batch is made."""

    def room(self, nbytes: int, keep: int = 0) -> Memory:
        """The slot, made larger if it has to be; its first ``keep`` bytes stay what they are."""
        ...

    wanted: Wanted
    """Whether it still is."""
    following: int | None
    """The step of the same epoch that is probably made next."""
    careful: bool
    """Its samples are to be fetched one by one, since one of them has killed a worker."""
    slot_ns: int
    """So long it took to make a slot, where one had to be made."""


def refuse_too_large(nbytes: int, most: int) -> None:
    """Raises `NoRoom` for a batch that is larger than is allowed; a sample is never larger than its batch."""
    if nbytes > most:
        raise NoRoom.of(
            f"a batch of {nbytes:,} bytes is more than max_batch_nbytes allows, {most:,} (a DataLoader's "
            "max_minibatch_length): make batch_size smaller, or raise it, by default a quarter of memory_budget",
            nbytes,
            most,
        )


class HeapMemory:
    """Room for one batch in this process's own memory; goes when the last array on it goes. See `Holding`."""

    room = None
    """There is nothing that outlives the batch."""

    def __init__(self, nbytes: int) -> None:
        self.memory = np.empty(nbytes, np.uint8)
        self.nbytes = nbytes
        self.views: dict[Any, Any] = {}

    def landed(self) -> None:
        """Nobody waits for the memory."""

    def array(self, shape: tuple[int, ...], dtype: str, offset: int) -> Any:
        """An array on it."""
        return np.ndarray(shape, dtype, self.memory, offset)


class HeapBerth:
    """Memory that is as large as the batch turns out to be."""

    def __init__(self, most_nbytes: int | None) -> None:
        self._memory = HeapMemory(0)
        self._most_nbytes = most_nbytes
        self.wanted = Wanted([0], 0)
        self.following: int | None = None
        self.careful = False
        self.slot_ns = 0

    def room(self, nbytes: int, keep: int = 0) -> HeapMemory:
        if self._memory.nbytes < nbytes:
            if self._most_nbytes is not None:
                refuse_too_large(nbytes, self._most_nbytes)
            larger = HeapMemory(nbytes)
            larger.memory[:keep] = self._memory.memory[:keep]
            self._memory = larger
        return self._memory

    def taken(self) -> HeapMemory:
        """The memory, for whoever lands the batch: without the maker's views, whose keys he uses for his own."""
        self._memory.views = {}
        return self._memory
