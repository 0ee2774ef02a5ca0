"""What is done to a stream of samples or batches, where as many do not come out as go in. Each worker has its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from swift_loader.plan.seeding import derive
from swift_loader.shards.columns import in_columns
from swift_loader.shards.stages import DROPPED, Stage

Flow: TypeAlias = Callable[[Iterator[Any], int], Iterator[Any]]
"""From a stream and a key of random numbers."""


@dataclass(frozen=True, slots=True)
class Each:
    """A stage for each item."""

    stage: Stage

    def __call__(self, items: Iterator[Any], key: int) -> Iterator[Any]:  # noqa: ARG002 - no chance in it
        for item in items:
            if (made := self.stage(item)) is not DROPPED:
                yield made


@dataclass(frozen=True, slots=True)
class Select:
    """Items of which a function says so."""

    wanted: Stage

    def __call__(self, items: Iterator[Any], key: int) -> Iterator[Any]:  # noqa: ARG002 - no chance in it
        return filter(self.wanted, items)


@dataclass(frozen=True, slots=True)
class Mix:
    """A buffer of which one is taken by chance, and another put in its place."""

    size: int

    def __call__(self, items: Iterator[Any], key: int) -> Iterator[Any]:
        chance = random.Random(key)  # noqa: S311 - of an order
        buffer = list(islice(items, self.size))
        for item in items:
            place = chance.randrange(len(buffer))
            buffer[place], item = item, buffer[place]  # noqa: PLW2901 - what goes out for what came in
            yield item
        chance.shuffle(buffer)
        yield from buffer


@dataclass(frozen=True, slots=True)
class Batching:
    """So many samples as one batch."""

    size: int
    collate: Stage | None = in_columns
    partial: bool = True
    """The last, smaller one too."""

    def batch(self, samples: list[Any]) -> Any:
        """One, of these."""
        return samples if self.collate is None else self.collate(samples)

    def __call__(self, items: Iterator[Any], key: int) -> Iterator[Any]:  # noqa: ARG002 - no chance in it
        while samples := list(islice(items, self.size)):
            if self.partial or len(samples) == self.size:
                yield self.batch(samples)


@dataclass(frozen=True, slots=True)
class Unbatch:
    """Batches of columns become samples again."""

    def __call__(self, items: Iterator[Any], key: int) -> Iterator[Any]:  # noqa: ARG002 - no chance in it
        for batch in items:
            if isinstance(batch, dict):
                yield from (dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True))
            else:
                yield from zip(*batch, strict=True)


@dataclass(frozen=True, slots=True)
class Some:
    """Some of them, by their places."""

    bounds: tuple[int | None, ...]

    def __call__(self, items: Iterator[Any], key: int) -> Iterator[Any]:  # noqa: ARG002 - no chance in it
        return islice(items, *self.bounds)


@dataclass(frozen=True, slots=True)
class Then:
    """A function of the user's, from a stream to a stream."""

    function: Callable[..., Iterator[Any]]
    words: tuple[Any, ...]
    named: dict[str, Any]

    def __call__(self, items: Iterator[Any], key: int) -> Iterator[Any]:  # noqa: ARG002 - no chance of ours
        return iter(self.function(items, *self.words, **self.named))


def flowing(items: Iterator[Any], flows: tuple[Flow, ...], key: int) -> Iterator[Any]:
    """The stream behind all of them."""
    for number, flow in enumerate(flows):
        items = flow(items, derive(key, number))
    return items
