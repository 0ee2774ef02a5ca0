"""Many records -> one picture of them: sums, percentiles, what each worker did, and the slowest samples.

Of fixed size, however many batches there are: percentiles come from histograms whose steps are 4 % wide. Knows nothing
of files, nor of how a picture is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.telemetry.record import BatchRecord

if TYPE_CHECKING:
    import numpy.typing as npt

#: The document's names of the quantities, in the order in which a batch goes through them.
TASKS = {
    "wait for an order": "order_wait_ns",
    "wait for a slot": "slot_wait_ns",
    "collect batch data": "fetch_ns",
    "collate batch data": "collate_ns",
    "serialize batch data": "encode_ns",
    "come over the network": "transit_ns",
    "wait to be merged": "merge_ns",
    "decode batch data": "decode_ns",
    "transfer to device": "transfer_ns",
    "consumer waits for data": "wait_ns",
    "consumer works": "busy_ns",
}
PERCENTILES = (50, 95, 99)

_FIELDS = {name: place for place, name in enumerate(BatchRecord._fields)}
_TIMED = np.array([_FIELDS[name] for name in TASKS.values()])
_OF_WORKERS = ("fetch_ns", "collate_ns", "encode_ns", "order_wait_ns", "slot_wait_ns", "cpu_ns", "transit_ns", "nbytes")
_PER_OCTAVE = 16
_STEPS = 48 * _PER_OCTAVE
_SLOWEST = 5
_NS = 1e9


@dataclass(frozen=True, slots=True)
class Spread:
    """How one quantity lay over the batches, in seconds."""

    total_s: float
    mean_s: float
    percentiles_s: tuple[float, ...]
    """See `PERCENTILES`."""
    max_s: float


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """What one worker did."""

    number: int
    batches: int
    made_s: float
    order_wait_s: float
    slot_wait_s: float
    cpu_s: float
    transit_s: float
    """Its batches were on the network."""
    nbytes: int

    @property
    def busy_share(self) -> float:
        """Of its time it made batches."""
        whole_s = self.made_s + self.order_wait_s + self.slot_wait_s
        return self.made_s / whole_s if whole_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """One picture."""

    batches: int
    samples: int
    nbytes: int
    seconds: float
    """All that passed on the consumer's thread: it waited for data, landed it, and did something else."""
    spreads: dict[str, Spread]
    """By the names of `TASKS`."""
    land_s: float
    """The consumer's thread landed batches."""
    delay_s: float
    """Workers could have run and were given no core."""
    workers: tuple[WorkerShare, ...]
    slowest: tuple[tuple[int, float], ...]
    """Samples and their seconds, the slowest first."""

    @property
    def starved_share(self) -> float:
        """Of its time the consumer waited for data."""
        return self.spreads["consumer waits for data"].total_s / self.seconds if self.seconds > 0 else 0.0

    @property
    def batches_per_s(self) -> float:
        return self.batches / self.seconds if self.seconds > 0 else 0.0

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def nbytes_per_s(self) -> float:
        return self.nbytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def made_s(self) -> float:
        """Workers fetched, collated and encoded."""
        return sum(worker.made_s for worker in self.workers)

    @property
    def idle_share(self) -> float:
        """Of their time workers had no orders."""
        idle_s = sum(worker.order_wait_s for worker in self.workers)
        whole_s = sum(worker.made_s + worker.order_wait_s + worker.slot_wait_s for worker in self.workers)
        return idle_s / whole_s if whole_s > 0 else 0.0

    @property
    def slotless_share(self) -> float:
        """Of their time workers waited for memory."""
        slotless_s = sum(worker.slot_wait_s for worker in self.workers)
        whole_s = sum(worker.made_s + worker.order_wait_s + worker.slot_wait_s for worker in self.workers)
        return slotless_s / whole_s if whole_s > 0 else 0.0


class Tally:
    """Adds up records."""

    def __init__(self) -> None:
        self.batches = 0
        self._total: npt.NDArray[Any] = np.zeros(len(_FIELDS), np.float64)
        self._most: npt.NDArray[Any] = np.zeros(len(_FIELDS), np.int64)
        self._counts: npt.NDArray[Any] = np.zeros((len(_TIMED), _STEPS), np.int64)
        self._workers: dict[int, npt.NDArray[Any]] = {}
        """For each: batches, and the sums of `_OF_WORKERS`."""
        self._slowest: dict[int, int] = {}

    def add(self, records: Sequence[BatchRecord]) -> None:
        """Counts some more batches; quick for many at once."""
        table = np.array(records, np.int64)
        self.batches += len(table)
        self._total += table.sum(0)
        np.maximum(self._most, table.max(0), out=self._most)
        self._count(table[:, _TIMED])
        self._add_workers(table)
        self._add_slowest(table[:, _FIELDS["slowest_ns"]], table[:, _FIELDS["slowest_index"]])

    def absorb(self, other: Tally) -> None:
        """Counts what another has counted."""
        self.batches += other.batches
        self._total += other._total
        np.maximum(self._most, other._most, out=self._most)
        self._counts += other._counts
        for number, sums in other._workers.items():
            self._workers[number] = self._workers.get(number, 0) + sums
        for index, took in other._slowest.items():
            self._slowest[index] = max(took, self._slowest.get(index, 0))
        self._keep_slowest()

    def total(self, name: str) -> float:
        """The sum of a field."""
        return float(self._total[_FIELDS[name]])

    def summary(self) -> Summary:
        """The picture."""
        seconds = {name: self.total(f"{name}_ns") / _NS for name in ("wait", "land", "busy", "delay")}
        return Summary(
            batches=self.batches,
            samples=int(self.total("rows")),
            nbytes=int(self.total("nbytes")),
            seconds=seconds["wait"] + seconds["land"] + seconds["busy"],
            spreads={task: self.spread(task) for task in TASKS},
            land_s=seconds["land"],
            delay_s=seconds["delay"],
            workers=tuple(_share(number, sums) for number, sums in sorted(self._workers.items())),
            slowest=tuple((index, took / _NS) for index, took in self._slowest.items()),
        )

    def spread(self, task: str) -> Spread:
        """How one quantity lay."""
        place = _FIELDS[TASKS[task]]
        total_s, most_s = float(self._total[place]) / _NS, float(self._most[place]) / _NS
        counts = self._counts[list(TASKS).index(task)]
        below = np.cumsum(counts)
        steps = np.searchsorted(below, np.array(PERCENTILES) / 100 * max(1, self.batches))
        found = tuple(min(most_s, _middle_s(int(step))) for step in steps)
        return Spread(total_s, total_s / max(1, self.batches), found, most_s)

    def _count(self, times: npt.NDArray[Any]) -> None:
        # One look for all columns: what is less than a nanosecond is in the first step, which stands for nothing.
        steps = np.ceil(np.log2(np.maximum(times, 1)) * _PER_OCTAVE).astype(np.int64)
        places = np.minimum(steps, _STEPS - 1) + np.arange(len(_TIMED)) * _STEPS
        self._counts += np.bincount(places.ravel(), minlength=self._counts.size).reshape(self._counts.shape)

    def _add_workers(self, table: npt.NDArray[Any]) -> None:
        numbers = table[:, _FIELDS["worker"]]
        columns = [np.ones(len(table)), *(table[:, _FIELDS[name]] for name in _OF_WORKERS)]
        sums = np.stack([np.bincount(numbers, column) for column in columns], axis=1)
        for number in np.flatnonzero(sums[:, 0]):
            self._workers[int(number)] = self._workers.get(int(number), 0) + sums[number]

    def _add_slowest(self, times: npt.NDArray[Any], indices: npt.NDArray[Any]) -> None:
        for place in np.argsort(times)[-_SLOWEST:]:
            index = int(indices[place])
            if index >= 0:
                self._slowest[index] = max(int(times[place]), self._slowest.get(index, 0))
        self._keep_slowest()

    def _keep_slowest(self) -> None:
        kept = sorted(self._slowest.items(), key=lambda one: -one[1])[:_SLOWEST]
        self._slowest = dict(kept)


def _share(number: int, sums: npt.NDArray[Any]) -> WorkerShare:
    fetch, collate, encode, order_wait, slot_wait, cpu, transit = (float(value) / _NS for value in sums[1:-1])
    made = fetch + collate + encode
    return WorkerShare(number, int(sums[0]), made, order_wait, slot_wait, cpu, transit, int(sums[-1]))


def _middle_s(step: int) -> float:
    return 2.0 ** ((step - 0.5) / _PER_OCTAVE) / _NS if step else 0.0
