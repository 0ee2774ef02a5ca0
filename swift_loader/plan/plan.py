"""Which samples form step s of epoch e for consumer c: a pure function of the settings. It knows nothing of workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from swift_loader.errors import ConfigError
from swift_loader.plan.epoch_lanes import EpochLanes
from swift_loader.plan.order import shuffled
from swift_loader.plan.rotated import Rotation
from swift_loader.plan.seeding import order_key
from swift_loader.plan.share import Split

if TYPE_CHECKING:
    from swift_loader.plan.epoch_lanes import Need
    from swift_loader.plan.permute import U64
    from swift_loader.plan.runs import Runs
    from swift_loader.settings.arguments import Even

Fingerprint = dict[str, str | int | bool]


@runtime_checkable
class Plan(Protocol):
    """What a loader asks of a plan. A pure function of its settings that pickles: workers get a copy."""

    def step_count(self, epoch: int, consumer: int) -> int:
        """Say how many batches a consumer takes in an epoch."""

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:
        """Give the indices of the batches of steps first .. first + count - 1, fewer where the epoch ends."""

    def fingerprint(self) -> Fingerprint:
        """Name all settings that must be equal on every rank."""


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """Every sample once per epoch, in order or shuffled nearby, dealt out to consumers in equal steps.

    With rotation each sample comes several times per epoch, always to the same consumer unless the plan is elastic.

    Args:
        sample_count: Length of the dataset.
        batch_size: Samples per batch of one consumer.
        consumer_count: Consumers, one per GPU.
        shuffle: False is the order of the dataset.
        seed: With the epoch's number it decides the order.
        window: Neighbouring samples per window (`nearby_shuffle`); 0 permutes the whole epoch.
        mix: Windows whose samples are permuted together (`nearby_mix`). With runs, how many of them a consumer mixes
            at a time; with elastic, all consumers together.
        even: How the consumers' steps are made equal: "balance", "pad", "drop" or "none".
        drop_last: Leave out every consumer's last batch if it is smaller, before `even` is applied.
        elastic: Cut steps from one global order, so that they do not depend on consumer_count as long as
            batch_size * consumer_count stays the same.
        rotation: How often each sample comes in an epoch.
        block: So many samples of a consumer (of all, with elastic) are used by turns, before others take their place.
        runs: Neighbours that are cheap to read together. Shuffled, they are mixed instead of windows.

    Example:
        >>> plan = EpochPlan(sample_count=10, batch_size=4, shuffle=False, even="none")
        >>> plan.indices(epoch=0, consumer=0, first=1, count=2)
        [[4, 5, 6, 7], [8, 9]]
    """

    sample_count: int
    batch_size: int
    consumer_count: int = 1
    shuffle: bool = True
    seed: int = 0
    window: int = 0
    mix: int = 16
    even: Even = "balance"
    drop_last: bool = False
    elastic: bool = False
    rotation: int = 1
    block: int = 1024
    runs: Runs | None = None

    def __post_init__(self) -> None:
        if self.window < 0 or self.mix < 1:
            raise ConfigError(f"a plan needs window >= 0 and mix >= 1, not {self.window} and {self.mix}")
        if self.rotation < 1 or self.block < 1:
            raise ConfigError(f"a plan needs rotation >= 1 and block >= 1, not {self.rotation} and {self.block}")
        if self.runs is not None and self.runs.sample_count != self.sample_count:
            raise ConfigError(f"runs of {self.runs.sample_count} samples together are not those of {self.sample_count}")
        self._split  # noqa: B018 # made now, so that impossible counts are refused now

    @cached_property
    def _split(self) -> Split:
        return Split(
            sample_count=self.sample_count,
            batch_size=self.batch_size,
            consumer_count=self.consumer_count,
            even=self.even,
            drop_last=self.drop_last,
            elastic=self.elastic,
            ceil_shares=not self.shuffle,
            uses=self.rotation,
        )

    @cached_property
    def _lanes(self) -> EpochLanes:
        assert self.runs is not None
        return EpochLanes(self.runs, self._split, self.mix, self.seed)

    def step_count(self, epoch: int, consumer: int) -> int:  # noqa: ARG002 # the same in every epoch
        """Say how many batches a consumer takes in an epoch."""
        return self._split.share(consumer).step_count

    def samples_of(self, consumer: int) -> int:
        """Say how many samples a consumer takes in an epoch, without repeats that make steps equal."""
        return self._split.share(consumer).sample_count

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:
        """Give the indices of the batches of steps first .. first + count - 1, fewer where the epoch ends."""
        key = order_key(self.seed, epoch)

        def once(places: U64) -> U64:
            if not self.shuffle:
                return places
            if self.runs is not None:
                return self._lanes.of(epoch, consumer)(places)
            return shuffled(places, self.sample_count, self.window, self.mix, key)

        def repeated(places: U64) -> U64:
            # Neighbours again, which is what an order is quick with.
            sources, back = np.unique(self._sources(places, consumer, key), return_inverse=True)
            return once(sources)[back]

        return self._split.share(consumer).batches(first, count, once if self.rotation == 1 else repeated)

    def need(self, epoch: int, consumer: int) -> Need | None:
        """Say what of the runs a consumer uses, and when; None where it has none, or keeps their order."""
        if self.runs is None or not self.shuffle:
            return None
        key = order_key(self.seed, epoch)
        return self._lanes.need(
            epoch, consumer, None if self.rotation == 1 else lambda places: self._sources(places, consumer, key)
        )

    def sources(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:
        """Give, for each index that `indices` gives, where in the epoch's order its sample stands once."""
        key = order_key(self.seed, epoch)
        return self._split.share(consumer).batches(
            first, count, lambda places: self._sources(places, consumer, key) if self.rotation > 1 else places
        )

    def _sources(self, places: U64, consumer: int, key: int) -> U64:
        """Give the places in an epoch without rotation that stand at these."""
        origin, count = self._split.samples(consumer)
        own = places - np.uint64(origin * self.rotation)
        return Rotation(count, self.rotation, self.block).repeated(own, key if self.shuffle else None) + origin

    def mask(self, epoch: int, consumer: int, step: int) -> list[bool] | None:  # noqa: ARG002 # the same in every epoch
        """Say False where a sample is a repeat that fills up; None if all are real."""
        return self._split.share(consumer).mask(step)

    def fingerprint(self) -> Fingerprint:
        """Name all settings that must be equal on every rank."""
        return {
            "plan": type(self).__name__,
            "len(dataset)": self.sample_count,
            "batch_size": self.batch_size,
            "nb_consumer": self.consumer_count,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "nearby_shuffle": self.window,
            "nearby_mix": self.mix,
            "even": self.even,
            "drop_last": self.drop_last,
            "elastic": self.elastic,
            # Not without them: states of versions that had none still fit.
            **({"rotation": self.rotation, "block": self.block} if self.rotation > 1 else {}),
            **({} if self.runs is None else {"runs": self.runs.digest}),
        }
