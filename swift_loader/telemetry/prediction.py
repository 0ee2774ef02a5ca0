"""What other numbers of workers would bring: throughput and waiting, predicted from one measured epoch. Pure.

A batch costs a worker CPU time, and time in which it waits without using a core (for a disk, for a server). It costs
the consumer's process CPU time too, and the consumer's thread the time that a training step takes. So there are three
limits, and the lowest one holds:

- the workers: each makes one batch after the other;
- the cores: all CPU time of a batch has to fit on those that there are, as far as others leave them to us;
- the consumer, which takes no more than it uses.

Time for which a worker could have run and was given no core is not part of a batch's cost: it is made anew by however
many workers there are. That is why it is measured apart, and why a prediction from eight workers on two cores holds for
two workers. Knows nothing of where the figures come from.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Beyond so much of its time without orders, a worker is not what the consumer waits for.
_IDLE = 0.25
#: From here on, waiting is more than noise.
_STARVED = 0.05
#: Where the kernel does not tell how long a worker waited for a core: with so much of the cores in use, all that was no
#: CPU time was that.
_FULL = 0.9
#: A worker that could run for less of a batch's time than this mostly waits.
_MOSTLY = 0.5
#: Of the most batches per second: from here on, others are as good.
_AS_GOOD = 0.98


@dataclass(frozen=True, slots=True)
class Measured:
    """One epoch of one consumer. All times are seconds per batch, but for the first ones."""

    workers: int
    threads: int
    """``worker_threads``."""
    batches_per_s: float
    cores: float
    """How many there are for this process, by affinity and quota."""
    cores_of_others: float
    """How many of them others used."""
    fetch_s: float
    """A worker fetched, or waited for the threads that fetch for it."""
    work_s: float
    """A worker made the batch, fetching included: by the clock on the wall."""
    cpu_s: float
    """Of that, and of what it did around it, it used cores: all its threads together."""
    delay_s: float | None
    """Of that it could have run, and got no core; None where the kernel does not say."""
    idle_share: float
    """Of its time a worker had nothing to do."""
    busy_s: float
    """The consumer's thread did something else than to wait for data: trained, and landed the batch."""
    consumer_cpu_s: float
    """CPU time of the consumer's process, all its threads together."""
    starved_share: float
    """Of its time the consumer waited for data."""

    @property
    def wait_s(self) -> float:
        """What a worker waited without using or wanting a core."""
        return max(0.0, self.work_s - self.cpu_s - self._without_core_s)

    @property
    def _without_core_s(self) -> float:
        if self.delay_s is not None:
            return self.delay_s
        used = (self.cpu_s + self.consumer_cpu_s) * self.batches_per_s + self.cores_of_others
        return self.work_s if used > _FULL * self.cores else 0.0

    @property
    def is_held_up_between(self) -> bool:
        """The consumer starves and so do the workers: a slow sample holds up the order, or slots are short."""
        return self.starved_share > _STARVED and self.idle_share > _IDLE and self.workers > 0


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is to be expected."""

    batches_per_s: float
    starved_share: float
    """Of its time the consumer will wait for data."""
    limit: str
    """What holds it back: "workers", "cores", "consumer", or "order" (something between workers and consumer)."""


def predict(measured: Measured, workers: int, threads: int = 1) -> Predicted:
    """What ``workers`` with ``threads`` each would bring.

    Args:
        measured: One epoch with any number of workers, without its first batches where that can be had.
        workers: ``worker_per_consumer``, at least 1.
        threads: ``worker_threads``.

    Example:
        >>> one = Measured(1, 1, 10.0, 8.0, 0.0, 0.09, 0.1, 0.1, 0.0, 0.0, 0.02, 0.0, 0.8)
        >>> predict(one, workers=4).batches_per_s
        40.0
        >>> round(predict(one, workers=8).starved_share, 2)
        0.0
    """
    limits = {
        "workers": workers / max(_batch_s(measured, threads), 1e-9),
        "cores": _cores_left(measured) / max(measured.cpu_s + measured.consumer_cpu_s, 1e-9),
        "consumer": 1 / max(measured.busy_s, 1e-9),
    }
    if measured.is_held_up_between and workers >= measured.workers:
        limits["order"] = measured.batches_per_s
    limit = min(limits, key=lambda name: limits[name])
    rate = limits[limit]
    return Predicted(rate, max(0.0, 1 - rate * measured.busy_s), limit)


def fewest(measured: Measured, most_starved: float, most_workers: int) -> int:
    """The fewest workers with which the consumer waits for at most this share, or that bring as much as any number.

    By throughput, since a consumer that takes no time waits for nearly all of it, whatever comes.
    """
    expected = [predict(measured, count, measured.threads) for count in range(1, most_workers + 1)]
    enough = _AS_GOOD * max(one.batches_per_s for one in expected)
    return next(
        count
        for count, one in enumerate(expected, 1)
        if one.starved_share <= most_starved or one.batches_per_s >= enough
    )


def _batch_s(measured: Measured, threads: int) -> float:
    """What a batch takes one worker with a core of its own.

    Threads wait side by side; what of it is CPU time is taken to run one after the other, as the interpreter's lock has
    it where libraries do not let go of it.
    """
    runs_s = measured.cpu_s if 1 in (threads, measured.threads) else min(measured.cpu_s, measured.work_s)
    fetches_s = min(measured.wait_s, measured.fetch_s)
    return runs_s + measured.wait_s - fetches_s + fetches_s * measured.threads / threads


def _cores_left(measured: Measured) -> float:
    """What others leave. They keep what they had: kernels share cores among sessions and containers, not by how many
    processes each of them has.
    """
    got = (measured.cpu_s + measured.consumer_cpu_s) * measured.batches_per_s
    wanted_s = measured.cpu_s + (measured.delay_s or 0.0)
    # Who sleeps most of the time gets a core when it wakes up, whoever else wants one.
    mostly_waits = wanted_s < _MOSTLY * measured.work_s
    return max(measured.cores - measured.cores_of_others, got, measured.cores / 2 if mostly_waits else 0.0)
