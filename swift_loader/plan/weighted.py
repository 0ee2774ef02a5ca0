"""Samples drawn with replacement, each as often as its weight says. It knows nothing of what the weights mean."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from swift_loader.errors import ConfigError
from swift_loader.plan.permute import GOLDEN, WORD, scramble
from swift_loader.plan.seeding import order_key
from swift_loader.plan.share import Split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from swift_loader.plan.permute import U64
    from swift_loader.plan.plan import Fingerprint


class WeightedPlan:
    """Draws samples with replacement, with probabilities proportional to weights.

    What is drawn at a place of an epoch depends on the seed, the epoch and the place alone. All consumers take the same
    number of steps.

    Args:
        weights: One number >= 0 for each sample of the dataset.
        batch_size: Samples per batch of one consumer.
        consumer_count: Consumers, one per GPU.
        samples_per_epoch: Draws per epoch, over all consumers; as many as there are weights if not given.
        seed: With the epoch's number it decides what is drawn.

    Example:
        >>> WeightedPlan([0.0, 1.0], batch_size=2).indices(epoch=0, consumer=0, first=0, count=1)
        [[1, 1]]
    """

    def __init__(
        self,
        weights: ArrayLike,
        batch_size: int,
        consumer_count: int = 1,
        samples_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        values = np.asarray(weights, np.float64)
        if values.ndim != 1 or not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
            raise ConfigError("weights must be one list of finite numbers >= 0, at least one of them above 0")
        if samples_per_epoch is not None and samples_per_epoch < 1:
            raise ConfigError(f"samples_per_epoch must be at least 1, not {samples_per_epoch}")
        # Scaled so that neither the sum of huge weights nor that of tiny ones is lost.
        self._ends = np.cumsum(values / values.max())
        self._last = int(np.flatnonzero(values)[-1])
        self._seed = seed
        self._split = Split(
            sample_count=len(values) if samples_per_epoch is None else samples_per_epoch,
            batch_size=batch_size,
            consumer_count=consumer_count,
            even="balance",
        )

    def __repr__(self) -> str:
        return f"WeightedPlan({self._ends.size} weights, seed={self._seed}, {self._split})"

    def step_count(self, epoch: int, consumer: int) -> int:  # noqa: ARG002 # the same in every epoch
        """Say how many batches a consumer takes in an epoch."""
        return self._split.share(consumer).step_count

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:
        """Give the indices of the batches of steps first .. first + count - 1, fewer where the epoch ends."""
        key = np.uint64(order_key(self._seed, epoch) & WORD)

        def drawn(places: U64) -> U64:
            fractions = (scramble(places * GOLDEN + key) >> 11) * 2.0**-53
            found = np.searchsorted(self._ends, fractions * self._ends[-1], side="right")
            indices: U64 = np.minimum(found, self._last).astype(np.uint64)
            return indices

        return self._split.share(consumer).batches(first, count, drawn)

    def mask(self, epoch: int, consumer: int, step: int) -> list[bool] | None:  # noqa: ARG002 # the same in every epoch
        """Say False where a sample is a repeat that fills up; None if all are real."""
        return self._split.share(consumer).mask(step)

    def fingerprint(self) -> Fingerprint:
        """Name all settings that must be equal on every rank."""
        return {
            "plan": type(self).__name__,
            "len(dataset)": self._ends.size,
            "weights": blake2b(self._ends.tobytes(), digest_size=8).hexdigest(),
            "batch_size": self._split.batch_size,
            "nb_consumer": self._split.consumer_count,
            "samples_per_epoch": self._split.sample_count,
            "seed": self._seed,
        }
