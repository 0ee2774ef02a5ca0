"""How far workers and threads can help, from what one worker showed. Pure.

A worker makes ``rate`` batches per second and keeps ``cores`` of a core busy meanwhile. So many workers make so many
times as much, until there are no cores left or the consumer is fed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from swift_loader.tuning.looks import TOLERANCE, Look

#: Threads are worth their risk where a sample mostly waits, and long enough for a thread to be woken meanwhile.
MUCH_WAITING = 0.5
_WORTH_A_THREAD_S = 0.3e-3


class Machine(NamedTuple):
    """What this consumer has of the machine."""

    cores: float
    free_nbytes: int = 1 << 40


class OneWorker(NamedTuple):
    """What one worker does when batches are taken as fast as they come."""

    rate: float
    """Batches per second."""
    cores: float
    """So much of a core it wants while it makes batches."""
    waiting: float
    """The share of its time in which it neither uses a core nor wants one."""
    sample_s: float
    nbytes: int

    @classmethod
    def seen(cls, look: Look) -> OneWorker:
        """As a look showed it."""
        return cls(
            rate=look.rate,
            cores=1 - look.waiting,
            waiting=look.waiting,
            sample_s=look.made_s / look.samples if look.samples else 0.0,
            nbytes=look.worker_nbytes,
        )

    @property
    def may_gain_by_threads(self) -> bool:
        return self.waiting > MUCH_WAITING and self.sample_s > _WORTH_A_THREAD_S


def most_by_cores(one: OneWorker, machine: Machine) -> int:
    """From so many workers on, all cores are busy."""
    return max(1, math.ceil(machine.cores / max(one.cores, 0.01) - 1e-9))


def most_by_memory(one: OneWorker, machine: Machine) -> int:
    """So many workers have room, with as many of another loader beside them while both are compared."""
    return max(1, int(machine.free_nbytes // 3 // max(one.nbytes, 1)))


def needed(one: OneWorker, consumer_s: float) -> int | None:
    """So many workers feed the consumer; None if it takes whatever there is."""
    if consumer_s <= 0:
        return None
    return max(1, math.ceil((1 - TOLERANCE) / consumer_s / max(one.rate, 1e-9) - 1e-9))


def predicted(one: OneWorker, machine: Machine, consumer_s: float) -> int:
    """How many workers it should be."""
    by_cores, wanted = most_by_cores(one, machine), needed(one, consumer_s)
    return by_cores if wanted is None else min(by_cores, wanted)
