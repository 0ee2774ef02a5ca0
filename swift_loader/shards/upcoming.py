"""What the next steps of a plan need of a set, as stretches: for plans that go to no runs, and for parts of sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from swift_loader.plan.epoch_lanes import Need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.shards.catalog import Catalog

#: Neighbours are fetched together up to so much.
_MOST_NBYTES = 8 << 20


class Terms(NamedTuple):
    """What is fetched though it is not wanted: it costs less than another request, or time."""

    gap_nbytes: int = 128 << 10
    """Neighbours are fetched together across gaps of so much, if half of what comes is wanted."""
    whole_share: float = 0.25
    """Of a run of which so much is wanted all is fetched."""
    spare_nbytes: int = 8 << 20
    spare_share: float = 0.05
    """So much, and this share of all that came, may be fetched twice so that nobody waits."""


#: Where bytes cost nothing, as within the region of a bucket; and where each one is paid for.
FREE, METERED = Terms(), Terms(16 << 10, 0.9, 0, 0.0)


def need_of_steps(batches: Sequence[Sequence[int]], first_step: int, catalog: Catalog, terms: Terms = FREE) -> Need:
    """The stretches in which the samples of these steps lie, by the step at which they are first needed."""
    samples = np.concatenate([np.asarray(batch, np.int64) for batch in batches] or [np.zeros(0, np.int64)])
    steps = np.repeat(np.arange(len(batches)) + first_step, [len(batch) for batch in batches])
    samples, of = np.unique(np.where(samples < 0, samples + catalog.samples, samples), return_inverse=True)
    first, last = np.full(len(samples), np.iinfo(np.int64).max), np.full(len(samples), -1)
    np.minimum.at(first, of, steps)
    np.maximum.at(last, of, steps)
    return together(samples, first, last, catalog, terms)


def together(
    samples: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64], catalog: Catalog, terms: Terms
) -> Need:
    """Samples, in order and each once, as stretches of near ones; each with its first and last step."""
    if not len(samples):
        return Need(*np.zeros((4, 0), np.int64))
    shards = np.searchsorted(catalog.bounds, samples, "right") - 1
    nbytes = (catalog.rows["object_nbytes"] / np.maximum(catalog.rows["count"], 1))[shards]
    gaps = np.diff(samples) - 1
    parts = gaps * nbytes[1:] > np.minimum(terms.gap_nbytes, nbytes[1:])
    parts |= np.diff(shards) > 0
    pieces = np.concatenate(([0], np.cumsum(parts)))
    begins = np.flatnonzero(np.diff(pieces, prepend=-1))
    # Long stretches are cut where they have become too long.
    behind = (samples - samples[begins][pieces]) * nbytes // _MOST_NBYTES
    begins = np.flatnonzero(np.diff(pieces, prepend=-1).astype(bool) | (np.diff(behind, prepend=0) != 0))
    ends = np.append(begins[1:], len(samples)) - 1
    sizes = samples[ends] - samples[begins] + 1
    firsts, lasts = np.minimum.reduceat(first, begins), np.maximum.reduceat(last, begins)
    by = np.lexsort((lasts, firsts))
    return Need(samples[begins][by], sizes[by], firsts[by], lasts[by])


class PlanOfSome:
    """A plan of some samples of a set, as a plan of the set.

    Args:
        plan: Of the samples that were picked.
        indices: Which they are.
        catalog: Of the set.
        terms: What is fetched though it was not picked.
    """

    def __init__(
        self, plan: Any, indices: Sequence[int] | NDArray[np.int64], catalog: Catalog, terms: Terms = FREE
    ) -> None:
        self._plan, self._indices, self._catalog = plan, np.asarray(indices, np.int64), catalog
        self._terms = terms

    def step_count(self, epoch: int, consumer: int) -> int:
        """As a plan's."""
        return int(self._plan.step_count(epoch, consumer))

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[Any]:
        """As a plan's, of the set."""
        return [self._indices[batch] for batch in self._plan.indices(epoch, consumer, first, count)]

    def need(self, epoch: int, consumer: int) -> Need | None:
        """As a plan's: runs of which much was picked, and of others what was."""
        need = self._plan.need(epoch, consumer) if hasattr(self._plan, "need") else None
        if need is None or not len(need.first) or (np.diff(self._indices) <= 0).any():
            return None
        begins = self._indices[need.first]
        spans = self._indices[need.first + need.size - 1] + 1 - begins
        is_whole = need.size >= self._terms.whole_share * spans
        alone = [np.arange(at, at + size) for at, size in zip(need.first[~is_whole], need.size[~is_whole], strict=True)]
        places = np.concatenate([*alone, np.zeros(0, np.int64)]).astype(np.int64)
        steps = [np.repeat(column[~is_whole], need.size[~is_whole]) for column in (need.first_step, need.last_step)]
        by = np.argsort(places, kind="stable")
        parts = together(self._indices[places[by]], steps[0][by], steps[1][by], self._catalog, self._terms)
        whole = (begins, spans, need.first_step, need.last_step)
        joined = [np.concatenate((column[is_whole], part)) for column, part in zip(whole, parts, strict=True)]
        order = np.lexsort((joined[3], joined[2]))
        return Need(*(column[order] for column in joined))
