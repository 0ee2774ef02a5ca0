"""Where a batch is made: what its maker asks of the slot, or of the memory that stands for one."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from swift_loader.errors import NoRoom

#: Memory of this process in which a batch was made is kept for the next one up to this size.
_KEPT_NBYTES = 1 << 20


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
    """Room for one batch in this process's own memory; goes when the last array on it goes.

    Where the batch has left no array on it, as small ones do, which are copied out, it has room for the next one: what
    was prepared for writing to it and for reading from it is there already.
    """

    def __init__(self, nbytes: int) -> None:
        self.memory = np.empty(nbytes, np.uint8)
        self.nbytes = nbytes
        self.views: dict[Any, Any] = {}
        """The maker's."""
        self.landing_views: dict[Any, Any] = {}
        """And those of who lands what it has made, whose keys are the same."""
        self.is_free = True


class HeapHold:
    """A batch's hold on such memory. See `Holding`."""

    room = None
    """There is no slot."""

    def __init__(self, memory: HeapMemory) -> None:
        memory.is_free = False
        self._room = memory
        self.memory, self.views = memory.memory, memory.landing_views
        self._has_arrays = False

    def landed(self) -> None:
        """Only arrays hold the memory from now on."""
        self._room.is_free = not self._has_arrays

    def array(self, shape: tuple[int, ...], dtype: str, offset: int) -> Any:
        """An array on it."""
        self._has_arrays = True
        return np.ndarray(shape, dtype, self.memory, offset)


class HeapBerth:
    """Memory that is as large as the batch turns out to be.

    Args:
        most_nbytes: A batch may be so large.
        last: Where the batch before was made.
    """

    def __init__(self, most_nbytes: int | None, last: HeapMemory | None = None) -> None:
        # What is large is not kept for a batch that may be small, and hold all of it.
        is_usable = last is not None and last.is_free and last.nbytes <= _KEPT_NBYTES
        self.memory = last if last is not None and is_usable else HeapMemory(0)
        self._most_nbytes = most_nbytes
        self.wanted = Wanted([0], 0)
        self.following: int | None = None
        self.careful = False
        self.slot_ns = 0

    def room(self, nbytes: int, keep: int = 0) -> HeapMemory:
        if self.memory.nbytes < nbytes:
            if self._most_nbytes is not None:
                refuse_too_large(nbytes, self._most_nbytes)
            larger = HeapMemory(nbytes)
            larger.memory[:keep] = self.memory.memory[:keep]
            self.memory = larger
        return self.memory
