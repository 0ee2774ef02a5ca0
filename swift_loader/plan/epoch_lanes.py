"""The lanes of each epoch and consumer, and what of the runs is needed when: for those who read ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from swift_loader.plan.lanes import Lanes, Row
from swift_loader.plan.seeding import order_key

if TYPE_CHECKING:
    from swift_loader.plan.permute import U64
    from swift_loader.plan.runs import I64, Laid, Runs
    from swift_loader.plan.share import Split

K = TypeVar("K")
V = TypeVar("V")

#: So many epochs' sequences and shares' lanes are remembered: of an epoch that ends, and the next one.
_REMEMBERED = 2
#: No epoch has this number: what is decided for all of them.
_LASTING = -1


class Need(NamedTuple):
    """Runs and parts of runs, each contiguous in the dataset, by the step at which they are first needed."""

    first: I64
    """The first sample of each."""
    size: I64
    """How many samples."""
    first_step: I64
    last_step: I64


class EpochLanes:
    """The lanes of any epoch and consumer. The last few are remembered: they take milliseconds to make.

    Args:
        runs: Of the dataset.
        split: How the sequence is dealt out.
        mix: Lanes of a consumer; with elastic, of all together.
        seed: With the epoch's number it decides the order.
    """

    def __init__(self, runs: Runs, split: Split, mix: int, seed: int) -> None:
        self._runs, self._split, self._seed = runs, split, seed
        self._row = Row.of(split.batch_size * (split.consumer_count if split.elastic else 1), mix)
        self._laid: dict[int, Laid] = {}
        self._lanes: dict[tuple[int, int, int], Lanes] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_laid": {}, "_lanes": {}}

    def of(self, epoch: int, consumer: int) -> Lanes:
        """Give them; there must be samples."""
        origin, count = self._split.samples(consumer)
        key = order_key(self._seed, epoch)
        laid = _remembered(self._laid, epoch, lambda: self._runs.laid(key, order_key(self._seed, _LASTING)))
        return _remembered(self._lanes, (epoch, origin, count), lambda: Lanes(laid, origin, count, self._row, key))

    def need(self, epoch: int, consumer: int, sources: Callable[[U64], U64] | None) -> Need:
        """Say what a consumer uses in an epoch, and when.

        Args:
            epoch: Its number.
            consumer: Its number.
            sources: Where samples that come several times stand once; None if each comes once. It is asked step by
                step.
        """
        share = self._split.share(consumer)
        if not share.step_count:
            return Need(*np.zeros((4, 0), np.int64))
        lanes = self.of(epoch, consumer)
        whole = share.whole_count if sources is None else 0
        first, last = lanes.steps(share.part, share.batch_size, whole)
        for step in range(whole, share.step_count):
            places = share.places(step)
            pieces = lanes.pieces(places if sources is None else sources(places))
            first[pieces] = np.minimum(first[pieces], step)
            last[pieces] = step
        used = np.flatnonzero(last >= 0)
        used = used[np.lexsort((last[used], first[used]))]
        return Need(lanes.firsts[used], lanes.sizes[used], first[used], last[used])


def _remembered(made: dict[K, V], key: K, make: Callable[[], V]) -> V:
    found = made.get(key)
    if found is None:
        found = make()
        while len(made) >= _REMEMBERED:
            made.pop(next(iter(made)), None)  # another thread may be at it too
        made[key] = found
    return found
