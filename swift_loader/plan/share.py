"""How an epoch's places are dealt out: shares, steps, last batches. It knows nothing of what stands at a place.

What makes the consumers' steps equal is `even`:

- balance: all take as many steps as the largest share needs; a share's last two batches take what is left evenly.
- pad: the same number of steps, and every batch is full: a share that ran out begins again.
- drop: all shares are cut to the smallest.
- none: nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from swift_loader.errors import ConfigError
from swift_loader.plan.permute import U64

if TYPE_CHECKING:
    from swift_loader.settings.arguments import Even

Order = Callable[[U64], U64]


class Batch(NamedTuple):
    """Places start .. start + size - 1 of a share; from `real` on they are repeats."""

    start: int
    real: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One consumer's part of an epoch.

    It is cut from a run of places that begins at origin. Usually the run belongs to this consumer alone (part 0 of 1).
    With elastic it belongs to all, and each takes its part of every step.
    """

    origin: int
    length: int  # after so many places repeats begin again
    sample_count: int  # so many places are the run's own
    batch_size: int
    part: int
    part_count: int
    even: Even
    whole_count: int  # the first steps, full for every consumer of the run
    step_count: int

    def batch(self, step: int) -> Batch:
        """Say which places of the run are this consumer's at a step."""
        step_size = self.batch_size * self.part_count
        if step < self.whole_count or self.even != "balance":
            start = step * step_size + self.part * self.batch_size
            real = max(0, min(self.batch_size, self.sample_count - start))
            return Batch(start, real, self.batch_size if self.even == "pad" else real)
        done = self.whole_count * step_size
        step_start, step_real = even_part(
            self.sample_count - done, self.step_count - self.whole_count, step - self.whole_count
        )
        start, real = even_part(step_real, self.part_count, self.part)
        return Batch(done + step_start + start, real, max(real, 1))

    def batches(self, first: int, count: int, order: Order) -> list[list[int]]:
        """Give the indices of steps first .. first + count - 1 in an epoch's order, fewer where the epoch ends."""
        last = min(first + count, self.step_count)
        if first >= last:
            return []
        stop = max(first, min(last, self.whole_count))
        step_size = self.batch_size * self.part_count
        starts = np.arange(first, stop, dtype=np.uint64) * step_size + (self.origin + self.part * self.batch_size)
        whole = (starts[:, None] + np.arange(self.batch_size, dtype=np.uint64)).ravel()
        rest = [self.places(step) for step in range(stop, last)]
        indices = order(np.concatenate([whole, *rest]))
        batches: list[list[int]] = indices[: whole.size].reshape(-1, self.batch_size).tolist()
        at = whole.size
        for places in rest:
            batches.append(indices[at : at + places.size].tolist())
            at += places.size
        return batches

    def places(self, step: int) -> U64:
        """Give the places of the epoch that are this consumer's at a step, repeats as well."""
        start, _, size = self.batch(step)
        return np.arange(start, start + size, dtype=np.uint64) % self.length + self.origin

    def mask(self, step: int) -> list[bool] | None:
        """Say which samples of a step are real and which are repeats; None if all are real."""
        _, real, size = self.batch(step)
        return None if real == size else [True] * real + [False] * (size - real)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """All that decides how many samples each consumer gets, and at which steps.

    Example:
        >>> split = Split(sample_count=101, batch_size=8, consumer_count=4, even="balance")
        >>> [split.share(0).batch(step).size for step in range(split.share(0).step_count)]
        [8, 8, 5, 5]
    """

    sample_count: int
    batch_size: int
    consumer_count: int
    even: Even
    drop_last: bool = False
    elastic: bool = False
    ceil_shares: bool = False  # shares of ceil(N / C) samples while they last, not as equal as can be
    uses: int = 1  # so many places has each sample, all of them in one share

    def __post_init__(self) -> None:
        for name, least in (("sample_count", 0), ("batch_size", 1), ("consumer_count", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"a plan needs {name} >= {least}, not {getattr(self, name)}")
        if self.sample_count * self.uses > 1 << 62:
            raise ConfigError(f"a plan numbers at most 2**62 samples, not {self.sample_count * self.uses}")
        if self.even not in {"balance", "pad", "drop", "none"}:
            raise ConfigError(f"even must be 'balance', 'pad', 'drop' or 'none', not {self.even!r}")

    def share(self, consumer: int) -> Share:
        """Give a consumer's share, in O(1)."""
        if not 0 <= consumer < self.consumer_count:
            raise ConfigError(f"consumer {consumer} is not one of the plan's {self.consumer_count}, 0 is the first")
        return self._elastic_share(consumer) if self.elastic else self._own_share(consumer)

    def samples(self, consumer: int) -> tuple[int, int]:
        """Say where in the order the samples begin that a consumer's places are of, and how many they are."""
        if self.elastic or self.share(consumer).sample_count == 0:
            return 0, self.sample_count
        return self._run(consumer)

    def _own_share(self, consumer: int) -> Share:
        origin, count = self._places(consumer)
        most = self._places(0)[1]
        steps = _ceil(most if self.even in {"balance", "pad"} else count, self.batch_size)
        return Share(
            origin=origin if count else 0,
            length=count or self.sample_count * self.uses,
            sample_count=count,
            batch_size=self.batch_size,
            part=0,
            part_count=1,
            even=self.even,
            whole_count=self._whole_steps(count, self.batch_size, steps),
            step_count=steps,
        )

    def _elastic_share(self, consumer: int) -> Share:
        step_size = self.batch_size * self.consumer_count
        count = self.sample_count * self.uses
        if self.drop_last or self.even == "drop":  # a step is dropped whole, or what is dropped would depend on C
            count -= count % step_size
        steps = _ceil(count, step_size)
        if self.even == "none" and (steps - 1) * step_size + consumer * self.batch_size >= count:
            steps -= 1
        return Share(
            origin=0,
            length=self.sample_count * self.uses,
            sample_count=count,
            batch_size=self.batch_size,
            part=consumer,
            part_count=self.consumer_count,
            even=self.even,
            whole_count=self._whole_steps(count, step_size, _ceil(count, step_size)),
            step_count=steps,
        )

    def _run(self, consumer: int) -> tuple[int, int]:
        """Give a share's first sample and how many it has."""
        last = self.consumer_count - 1
        if self.ceil_shares:
            share = _ceil(self.sample_count, self.consumer_count)
            origin = min(self.sample_count, consumer * share)
            count = min(self.sample_count - origin, share)
        else:
            origin, count = even_part(self.sample_count, self.consumer_count, consumer)
        return origin, self._run(last)[1] if self.even == "drop" and consumer != last else count

    def _places(self, consumer: int) -> tuple[int, int]:
        """Give a share's first place and its length, after drop_last."""
        origin, count = (number * self.uses for number in self._run(consumer))
        return origin, count - count % self.batch_size if self.drop_last else count

    def _whole_steps(self, count: int, step_size: int, steps: int) -> int:
        """Say how many full steps come first. With balance: all but two, or fewer where a later one would be empty."""
        if self.even != "balance" or step_size == 1:
            return count // step_size
        return max(0, min(steps - 2, (count - steps) // (step_size - 1)))


def even_part(total: int, part_count: int, part: int) -> tuple[int, int]:
    """Give the start and the size of one of so many parts, whose sizes differ by at most one.

    Example:
        >>> [even_part(10, 4, part) for part in range(4)]
        [(0, 3), (3, 3), (6, 2), (8, 2)]
    """
    size, longer = divmod(total, part_count)
    return part * size + min(part, longer), size + (part < longer)


def _ceil(count: int, size: int) -> int:
    return -(-count // size)
