"""A dataset whose samples the plan uses several times: each is made once, and kept from one use to the next."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from swift_loader.batch.record import MISSING, pickled, unpickled
from swift_loader.reuse.cached import Cached
from swift_loader.reuse.carousel import Carousel, Use

if TYPE_CHECKING:
    from swift_loader.plan.ahead import Ahead
    from swift_loader.plan.plan import EpochPlan

#: Places of the counts.
MADE, REUSED = range(2)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What `Repeated` is given by the room above."""

    ahead: Ahead
    plan: EpochPlan
    counts: Any
    """Words, for the samples that were made, and those that were used again."""
    made: Callable[[int, int, Callable[[], Any]], Any]
    """What makes a sample, by epoch and index, with random numbers of its own."""
    home: Callable[[str], Any]
    """Finds classes of the trainer's ``__main__``."""


class Repeated:
    """Stands in front of the dataset. What comes after a `Cached` is done anew at each use."""

    def __init__(self, dataset: Any, carousel: Carousel | None, around: Surroundings) -> None:
        self.dataset, self.then = Cached.apart(dataset)
        self._carousel = carousel
        self._around = around
        self._guard = threading.Lock()
        self._block = (-1, -1)
        self._positions: dict[int, int] = {}
        """Of the samples that are asked for about now, in the order of the epoch."""
        self._epoch = 0
        self._order = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def turn_to(self, order: int, epoch: int, step: int) -> None:
        """The samples of this step are asked for from now on."""
        if epoch != self._epoch:
            self._positions = {}
        self._order, self._epoch = order, epoch
        ahead = self._around.ahead
        block = (epoch, step // ahead.steps)
        if block == self._block and self._positions:
            return
        self._block = block
        first, count = block[1] * ahead.steps, ahead.steps + 1  # threads are ahead by a step
        batches = ahead.following(epoch, first, count)
        sources = self._around.plan.sources(epoch, ahead.consumer, first, len(batches))
        self._positions = dict(zip(chain.from_iterable(batches), chain.from_iterable(sources), strict=True))

    def __getitem__(self, index: int) -> Any:
        sample = self._sample(index)
        return sample if self.then is None else self.then(sample)

    def use_of(self, index: int) -> Use | None:
        """The use for which a sample is asked for now; None where that is not known."""
        position = self._positions.get(index)
        return None if position is None else Use(position, index, self._epoch, self._order)

    def get(self, use: Use | None) -> Any:
        """The sample, if it is kept from a use before; else `MISSING`."""
        memory = None if use is None or self._carousel is None else self._carousel.get(use)
        if memory is not None:
            with contextlib.suppress(Exception):  # classes raise what they like: then it is made again
                return unpickled(memory, self._around.home)
        return MISSING

    def keep(self, use: Use | None, sample: Any) -> None:
        """Keeps a sample that was made, for its next use."""
        if use is not None and use.epoch == self._epoch:  # else a thread has made it that is late, of no known epoch
            self._keep(use, sample)

    def _sample(self, index: int) -> Any:
        use, epoch = self.use_of(index), self._epoch
        sample = self.get(use)
        if sample is not MISSING:
            self._count(REUSED)
            return sample
        sample = self._around.made(epoch, index, lambda: self.dataset[index])
        self._count(MADE)
        self.keep(use, sample)
        return sample

    def close(self) -> None:
        """Lets go of what is kept."""
        if self._carousel is not None:
            self._carousel.close()

    def _keep(self, use: Use, sample: Any) -> None:
        carousel = self._carousel
        if carousel is None:
            return
        try:
            (memory,) = pickled(sample)
        except Exception as error:  # noqa: BLE001 - as above
            # Without addresses, or each worker would tell another.
            text = re.sub(r" at 0x[0-9a-f]+", "", f"{type(error).__name__}: {error}")
            carousel.tell(f"a sample cannot be pickled: {text[:200]}")
            return
        carousel.put(use, memory)

    def _count(self, what: int) -> None:
        with self._guard:
            self._around.counts[what] += 1
