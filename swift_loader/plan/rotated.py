"""Each sample of an order several times, spread apart: which sample stands at which place of the longer order.

A share of n samples that are used r times has n * r places. At most `block` samples are in rotation at a time.
Shuffled, they are r cohorts, each a piece of the order: in each phase all of them are gone through once, mixed, then
the oldest leaves and the next one comes. So new samples come all the time, and who makes them is as busy as who uses
them:

    phase     0      1         2           3           4           5        6        7
    cohorts   a     b a      c b a       b c d       c d e       f e d     f e       f       r = 3

The first half of each cohort comes in the first half of a phase, so two uses are half a block apart or more. At the
ends of a share, where phases are shorter, cohorts are not mixed, the youngest comes first, and it is one and a half
cohorts or more. Where the order is to be kept, or a block has fewer than 2 * r samples, it is gone through r times
before the next one begins.

It knows nothing of the order that it repeats, nor of what is kept between uses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from swift_loader.plan.permute import U64, WORD, permute
from swift_loader.plan.seeding import derive

_PHASES, _ENDS, _ROUNDS = range(100, 103)  # purposes beside those of the order that is repeated


class Rotation(NamedTuple):
    """How a share is repeated.

    Example:
        >>> Rotation(sample_count=5, uses=2, block=2).repeated(np.arange(10, dtype=np.uint64), None).tolist()
        [0, 1, 0, 1, 2, 3, 2, 3, 4, 4]
    """

    sample_count: int
    uses: int
    block: int

    def repeated(self, places: U64, key: int | None) -> U64:
        """Give the places in [0, sample_count) that stand at these of [0, sample_count * uses).

        Args:
            places: One-dimensional.
            key: The epoch's key, 128 bits; None keeps the order within each round.
        """
        if key is None or min(self.block, self.sample_count) < 2 * self.uses:
            return self._in_rounds(places, key)
        return self._in_phases(places, key)

    def _in_rounds(self, places: U64, key: int | None) -> U64:
        uses, (_, small, longer) = self.uses, self._pieces(self.block)
        many, size, size_longer = (np.full(places.shape, count, np.uint64) for count in (longer, small, small + 1))
        block, inner = _dealt(places, many, size_longer * uses, size * uses)
        sizes = size + (block < longer)
        rounds = inner // sizes
        inner -= rounds * sizes
        if key is not None:
            inner = _mixed(inner, sizes, _front(sizes), block * uses + rounds + _word(key, _ROUNDS))
        return block * small + np.minimum(block, longer) + inner

    def _in_phases(self, places: U64, key: int) -> U64:
        uses, (cohort_count, small, long_ones) = self.uses, self._cohorts
        phase, inner = self._phase_of(places)
        oldest = np.maximum(phase, uses - 1) - (uses - 1)
        present = np.minimum(phase, cohort_count - 1) - oldest + 1
        longer = np.maximum(oldest, long_ones) - oldest  # how many of those present have a sample more
        longer = np.minimum(longer, present)
        length = present * small + longer

        # Mixed: front halves first, then back halves, cohort by cohort before they are permuted.
        front, front_longer = (small + 1) // 2, (small + 2) // 2
        fronts = present * front + longer * (front_longer - front)
        mixed = _mixed(inner, length, fronts, phase + _word(key, _PHASES))
        behind = mixed >= fronts
        halves = np.where(behind, small - front, front).astype(np.uint64)
        halves_longer = np.where(behind, small + 1 - front_longer, front_longer).astype(np.uint64)
        cohort, place = _dealt(mixed - behind * fronts, longer, halves_longer, halves)
        place += behind * np.where(cohort < longer, front_longer, front).astype(np.uint64)

        ends = np.flatnonzero((phase < uses) | (phase >= cohort_count - 1))
        if ends.size:
            whole = np.full(ends.size, small, np.uint64)
            back = length[ends] - 1 - inner[ends]
            cohort[ends], from_its_end = _dealt(back, longer[ends], whole + 1, whole)
            sizes = small + (cohort[ends] < longer[ends]).astype(np.uint64)
            keys = phase[ends] * uses + cohort[ends] + _word(key, _ENDS)
            place[ends] = _mixed(sizes - 1 - from_its_end, sizes, _front(sizes), keys)
        cohort += oldest
        return cohort * small + np.minimum(cohort, long_ones) + place

    @property
    def _cohorts(self) -> tuple[int, int, int]:
        return self._pieces(min(self.block, self.sample_count) // self.uses)

    def _pieces(self, most: int) -> tuple[int, int, int]:
        """Cut the samples: how many pieces, their size, and how many, the first ones, have a sample more."""
        count = -(-self.sample_count // most)
        return count, *divmod(self.sample_count, count)

    def _phase_of(self, places: U64) -> tuple[U64, U64]:
        """Give each place's phase, and its place in there."""
        uses, (count, _, longer) = self.uses, self._cohorts
        # In between, phases are as long as the last one that is listed.
        changes = np.concatenate([np.arange(uses) + first for first in (0, longer, count - 1)])
        listed = np.unique(np.minimum(changes, count + uses - 2))
        starts = np.array([self._start(phase) for phase in listed.tolist()], np.uint64)
        lengths = np.array([self._start(phase + 1) for phase in listed.tolist()], np.uint64) - starts
        at = np.searchsorted(starts, places, side="right") - 1
        inner = places - starts[at]
        beyond = inner // lengths[at]
        return listed.astype(np.uint64)[at] + beyond, inner - beyond * lengths[at]

    def _start(self, phase: int) -> int:
        """Where a phase begins."""
        count, small, longer = self._cohorts
        before = _uses_before(phase, self.uses)
        return small * (before - _uses_before(phase - count, self.uses)) + (
            before - _uses_before(phase - longer, self.uses)
        )


def _uses_before(phase: int, uses: int) -> int:
    """How often cohorts were gone through before a phase, if one comes in each phase from 0 on."""
    if phase <= 0:
        return 0
    return phase * (phase + 1) // 2 if phase <= uses else uses * phase - uses * (uses - 1) // 2


def _front(sizes: U64) -> U64:
    half: U64 = (sizes + np.uint64(1)) // np.uint64(2)
    return half


def _dealt(places: U64, longer: U64, longer_size: U64, size: U64) -> tuple[U64, U64]:
    """Give each place's group, of which the first `longer` have another size, and its place in there."""
    first = longer * longer_size
    beyond = np.maximum(places, first) - first
    is_first = places < first
    # A size is zero only where no place is dealt by it.
    group = np.where(is_first, places // np.maximum(longer_size, 1), longer + beyond // np.maximum(size, 1))
    before = np.where(is_first, group * longer_size, first + (np.maximum(group, longer) - longer) * size)
    return group, places - before


def _mixed(places: U64, sizes: U64, fronts: U64, keys: U64) -> U64:
    """Permute [0, fronts) and [fronts, sizes), each place with its own sizes and its own key."""
    behind = places >= fronts
    lengths = np.where(behind, sizes - fronts, fronts)
    keys = keys * 2 + behind
    starts = behind * fronts
    mixed = np.empty_like(places)
    for length in np.unique(lengths):
        here = np.flatnonzero(lengths == length)
        mixed[here] = permute(places[here] - starts[here], int(length), keys[here]) + starts[here]
    return mixed


def _word(key: int, purpose: int) -> U64:
    return np.array([derive(key, purpose) & WORD], np.uint64)
