"""Plans that break one promise each, so that the checks are seen to fail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swift_loader.plan.plan import EpochPlan
from swift_loader.plan.share import even_part


@dataclass(frozen=True, kw_only=True)
class DrawsWithReplacement(EpochPlan):
    """Random indices instead of a permutation."""

    def indices(self, epoch, consumer, first, count):
        batches = super().indices(epoch, consumer, first, count)
        return [[index * index % self.sample_count for index in batch] for batch in batches]


@dataclass(frozen=True, kw_only=True)
class HidesRepeats(EpochPlan):
    """Fills up, and does not say so."""

    def mask(self, epoch, consumer, step):
        return None


@dataclass(frozen=True, kw_only=True)
class LastConsumerStopsEarly(EpochPlan):
    """The last consumer takes a step fewer."""

    def step_count(self, epoch, consumer):
        return super().step_count(epoch, consumer) - (consumer == self.consumer_count - 1)


@dataclass(frozen=True, kw_only=True)
class LeavesBatchesEmpty(EpochPlan):
    """Delivers no repeat where nothing is left."""

    def indices(self, epoch, consumer, first, count):
        batches = super().indices(epoch, consumer, first, count)
        masks = [self.mask(epoch, consumer, first + step) for step in range(len(batches))]
        return [[] if mask and not any(mask) else batch for batch, mask in zip(batches, masks, strict=True)]


@dataclass(frozen=True, kw_only=True)
class ShufflesBlocks(EpochPlan):
    """The samples of a batch depend on where the block that was asked for begins."""

    def indices(self, epoch, consumer, first, count):
        batches = super().indices(epoch, consumer, first, count)
        return [batch[first % len(batch) :] + batch[: first % len(batch)] for batch in batches]


@dataclass(frozen=True, kw_only=True)
class FirstEpochInOrder(EpochPlan):
    """Forgets to shuffle before the first epoch, like a list that is shuffled when an epoch ends."""

    def indices(self, epoch, consumer, first, count):
        if epoch:
            return super().indices(epoch, consumer, first, count)
        return EpochPlan(sample_count=self.sample_count, batch_size=self.batch_size, shuffle=False).indices(
            epoch, consumer, first, count
        )


@dataclass(frozen=True, kw_only=True)
class SameEveryEpoch(EpochPlan):
    """Shuffles once."""

    def indices(self, epoch, consumer, first, count):
        return super().indices(0, consumer, first, count)


@dataclass(frozen=True, kw_only=True)
class CutsUnequalShares(EpochPlan):
    """Consumers take ceil(N / C) samples while there are any."""

    def __post_init__(self):
        object.__setattr__(self, "even", "none")
        object.__setattr__(self, "shuffle", False)


@dataclass(frozen=True, kw_only=True)
class KeepsSharesForEver(EpochPlan):
    """Each consumer shuffles a part of the index space that is always the same."""

    def indices(self, epoch, consumer, first, count):
        origin, size = even_part(self.sample_count, self.consumer_count, consumer)
        own = EpochPlan(sample_count=size, batch_size=self.batch_size, seed=self.seed)
        return [[origin + index for index in batch] for batch in own.indices(epoch, 0, first, count)]


@dataclass(frozen=True, kw_only=True)
class MakesTheWholeEpoch(EpochPlan):
    """The usual way: a list of all indices, shuffled."""

    def indices(self, epoch, consumer, first, count):
        order = np.random.default_rng(epoch).permutation(self.sample_count)
        starts = range(first * self.batch_size, (first + count) * self.batch_size, self.batch_size)
        return [order[start : start + self.batch_size].tolist() for start in starts]


@dataclass(frozen=True, kw_only=True)
class ShufflesBy(EpochPlan):
    """A bijection that is not a good shuffle: whole epochs as one batch, for the statistics."""

    way: str

    def indices(self, epoch, consumer, first, count):
        random = np.random.default_rng(epoch)
        places = np.arange(self.sample_count)
        if self.way == "rotation":
            order = (places + random.integers(self.sample_count)) % self.sample_count
        elif self.way == "stride":
            strides = [n for n in range(1, self.sample_count) if np.gcd(n, self.sample_count) == 1]
            order = (places * random.choice(strides) + random.integers(self.sample_count)) % self.sample_count
        else:  # "swaps": every place is swapped with any other, which is not uniform
            order = places
            for place, other in enumerate(random.integers(self.sample_count, size=self.sample_count)):
                order[[place, other]] = order[[other, place]]
        return [order.tolist()]
