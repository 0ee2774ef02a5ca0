"""A ceiling: processes that put samples into shared memory that is warm already, and nothing else.

No consumer, no messages, no order, no safety: what two cores can do at most with a given dataset. Does not import
swift_loader.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLOTS = 2
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
NEVER = 1 << 30

#: Puts the sample of an index into its row of a slot.
Fill = Callable[[NDArray[Any], int], None]


@dataclass(frozen=True)
class Stacking:
    """What each process does, for so long: fill rows like `row`, `batch_size` to a slot, from indices below `count`."""

    fill: Fill
    row: NDArray[Any]
    count: int
    batch_size: int
    seconds: float

    def rate(self, processes: int = 2) -> float:
        """Samples per second that so many forked processes put into their own warm slots at the same time."""
        context = multiprocessing.get_context("fork")
        barrier = context.Barrier(processes)
        answers = context.SimpleQueue()
        children = [
            context.Process(target=lambda number=number: answers.put(self.measure(number, barrier)))
            for number in range(processes)
        ]
        for child in children:
            child.start()
        total: float = sum(answers.get() for _ in children)
        for child in children:
            child.join()
        return total

    def measure(self, number: int, barrier: Barrier) -> float:
        """One process: warm its slots up, wait for the others, fill slots in random order until time is over."""
        keep_the_heap()
        slots = [shared_array((self.batch_size, *self.row.shape), self.row.dtype) for _ in range(SLOTS)]
        indices = np.random.default_rng(number).permutation(self.count).tolist()
        for slot in slots:
            fill_slot(slot, self.fill, indices, 0)
        barrier.wait()
        began = time.perf_counter()
        done, position = 0, 0
        while time.perf_counter() - began < self.seconds:
            fill_slot(slots[done % SLOTS], self.fill, indices, position)
            position = (position + self.batch_size) % self.count
            done += 1
        return done * self.batch_size / (time.perf_counter() - began)


def fill_slot(slot: NDArray[Any], fill: Fill, indices: list[int], position: int) -> None:
    """One batch."""
    count = len(indices)
    for place in range(len(slot)):
        fill(slot[place], indices[(position + place) % count])


def shared_array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array in anonymous shared memory, which forked children share."""
    nbytes = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.frombuffer(mmap.mmap(-1, nbytes), dtype=dtype, count=int(np.prod(shape))).reshape(shape)


def keep_the_heap() -> None:
    """Keep glibc's malloc from giving memory back, so that decoders' scratch memory is warm too."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, NEVER)
    libc.mallopt(M_TRIM_THRESHOLD, NEVER)
