"""Batches of samples of similar length, so that little is padded. It knows nothing of what the lengths are lengths of.

Samples are sorted by length, longest first, and cut into buckets of `pool` steps of all consumers. Each epoch permutes
the samples within their buckets, and the steps. All consumers work on similar lengths at the same step.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from swift_loader.errors import ConfigError
from swift_loader.plan.permute import RANKED_AT_LEAST, WORD, permute
from swift_loader.plan.seeding import derive, order_key
from swift_loader.plan.share import Split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from swift_loader.plan.permute import U64
    from swift_loader.plan.plan import Fingerprint
    from swift_loader.settings.arguments import Even


class BucketedPlan:
    """Every sample once per epoch, in batches of similar length and in equal steps.

    Args:
        lengths: One number for each sample of the dataset.
        batch_size: Samples per batch of one consumer.
        consumer_count: Consumers, one per GPU.
        seed: With the epoch's number it decides the order.
        pool: Steps whose samples are mixed: more is more random, less is more similar.
        even: How the consumers' steps are made equal: "balance", "pad", "drop" or "none".

    Example:
        >>> plan = BucketedPlan([3, 9, 3, 9], batch_size=2, pool=1)
        >>> [sorted(batch) for batch in plan.indices(epoch=0, consumer=0, first=0, count=2)]
        [[1, 3], [0, 2]]
    """

    def __init__(
        self,
        lengths: ArrayLike,
        batch_size: int,
        consumer_count: int = 1,
        *,
        seed: int = 0,
        pool: int = 8,
        even: Even = "balance",
    ) -> None:
        values = np.asarray(lengths)
        if values.ndim != 1 or values.dtype.kind not in "iuf" or pool < 1:
            raise ConfigError(f"a bucketed plan needs one list of numbers and pool >= 1, not {values.dtype} and {pool}")
        self._sorted = np.argsort(-values.astype(np.float64), kind="stable").astype(np.uint64)
        self._seed, self._pool = seed, pool
        self._split = Split(
            sample_count=len(values), batch_size=batch_size, consumer_count=consumer_count, even=even, elastic=True
        )

    def __repr__(self) -> str:
        return f"BucketedPlan(seed={self._seed}, pool={self._pool}, {self._split})"

    def step_count(self, epoch: int, consumer: int) -> int:  # noqa: ARG002 # the same in every epoch
        """Say how many batches a consumer takes in an epoch."""
        return self._split.share(consumer).step_count

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:
        """Give the indices of the batches of steps first .. first + count - 1, fewer where the epoch ends."""
        share = self._split.share(consumer)
        key = order_key(self._seed, epoch)
        steps_key, samples_key = (np.array([derive(key, purpose) & WORD], np.uint64) for purpose in range(2))
        step_size = self._split.batch_size * self._split.consumer_count
        bucket_size = step_size * self._pool
        last_bucket, last_size = divmod(self._sorted.size, bucket_size)

        def order(places: U64) -> U64:
            moved = np.flatnonzero(places < share.whole_count * step_size)  # the smaller last steps stay last
            step = places[moved] // step_size
            places[moved] += (permute(step, share.whole_count, steps_key) - step) * step_size
            bucket = places // bucket_size
            inner = places - bucket * bucket_size
            mixed = permute(inner, bucket_size, bucket + samples_key, RANKED_AT_LEAST)
            here = np.flatnonzero(bucket == last_bucket)
            if here.size:
                mixed[here] = permute(inner[here], last_size, samples_key + np.uint64(last_bucket), RANKED_AT_LEAST)
            indices: U64 = self._sorted[bucket * bucket_size + mixed]
            return indices

        return share.batches(first, count, order)

    def mask(self, epoch: int, consumer: int, step: int) -> list[bool] | None:  # noqa: ARG002 # the same in every epoch
        """Say False where a sample is a repeat that fills up; None if all are real."""
        return self._split.share(consumer).mask(step)

    def fingerprint(self) -> Fingerprint:
        """Name all settings that must be equal on every rank."""
        return {
            "plan": type(self).__name__,
            "len(dataset)": self._sorted.size,
            "lengths": blake2b(self._sorted.tobytes(), digest_size=8).hexdigest(),
            "batch_size": self._split.batch_size,
            "nb_consumer": self._split.consumer_count,
            "seed": self._seed,
            "pool": self._pool,
            "even": self._split.even,
        }
