"""A ceiling: a bare ring of warm slots between forked workers and the consumer, with one-byte messages over pipes.

Strict order, no safety of any kind: a worker that dies hangs it, a batch that is kept is overwritten. It tells what
signalling and being handed a batch cost at the least. Does not import swift_loader.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.warm_slots import shared_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOTS = 4
TOKEN = b"x"


class BareRing:
    """Forked workers that fill their own slots in turn; iterating yields the slots' arrays, epoch after epoch.

    Args:
        fill: fills the slot of a batch, given its number since the start; None does nothing (signalling alone).
        shape: shape of a batch.
        dtype: its dtype.
        batches: batches per epoch.
        workers: how many workers.
    """

    def __init__(
        self,
        fill: Callable[[NDArray[Any], int], None] | None,
        *,
        shape: tuple[int, ...],
        dtype: str,
        batches: int,
        workers: int = 2,
    ) -> None:
        self.fill = fill
        self.batches = batches
        self.slots = [[shared_array(shape, np.dtype(dtype)) for _ in range(SLOTS)] for _ in range(workers)]
        self.lines = [(os.pipe(), os.pipe()) for _ in range(workers)]
        self.position = 0
        self.children = [self.fork(worker) for worker in range(workers)]
        for (order_read, _), (_, done_write) in self.lines:
            os.close(order_read)
            os.close(done_write)
        for worker in range(workers):
            os.write(self.lines[worker][0][1], TOKEN * SLOTS)

    def fork(self, worker: int) -> int:
        """Start a worker: it has one order per free slot, and ends when the orders' pipe does."""
        pid = os.fork()
        if pid:
            return pid
        for number, ((order_read, order_write), (done_read, done_write)) in enumerate(self.lines):
            os.close(order_write)
            os.close(done_read)
            if number != worker:
                os.close(order_read)
                os.close(done_write)
        order, done = self.lines[worker][0][0], self.lines[worker][1][1]
        turn = 0
        try:
            while os.read(order, 1):
                if self.fill is not None:
                    self.fill(self.slots[worker][turn % SLOTS], turn * len(self.slots) + worker)
                os.write(done, TOKEN)
                turn += 1
        except BrokenPipeError:
            pass
        finally:
            os._exit(0)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        workers = len(self.slots)
        for _ in range(self.batches):
            worker = self.position % workers
            (_, order), (done, _) = self.lines[worker]
            os.read(done, 1)
            yield self.slots[worker][self.position // workers % SLOTS]
            os.write(order, TOKEN)
            self.position += 1

    def close(self) -> None:
        """End the workers."""
        for (_, order), (done, _) in self.lines:
            os.close(order)
            os.close(done)
        for pid in self.children:
            os.waitpid(pid, 0)
