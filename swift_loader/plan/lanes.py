"""The order of a dataset whose neighbours are cheap to read together: a few runs are open at a time, and mixed.

The runs, permuted, lie end to end. A share of that sequence is cut into lanes. A row of places takes so many samples of
each lane, so a batch is of as many runs as there are lanes; a lane comes to its next run when it has gone through one.

    sequence   | run 5   | run 2 | run 9    | run 0  | run 7    | run 1  | run 4   |
    lanes      | a                | b                | c                 |                3 lanes
    row 0      a a b b c c                                                                2 samples of each lane
    row 1      a a b b c c                                                                the next ones

Lanes are out of step: each begins elsewhere in a run, and comes to what lies in front of that at its end. So new runs
are needed one after the other all the time, not all at once. The pieces that lanes' ends and beginnings leave of runs
are permuted in themselves: what is read together is cut into contiguous parts, and no part is needed twice.

A row is a step, or several where batches are smaller than there are lanes: then each takes of other lanes, by turns.

It knows nothing of files and bytes, nor of who reads ahead.
"""

from __future__ import annotations

from itertools import count
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from swift_loader.plan.permute import RANKED_AT_LEAST, U64, WORD, permute, permute_each
from swift_loader.plan.seeding import derive

if TYPE_CHECKING:
    from swift_loader.plan.runs import I64, Laid

_SAMPLES, _SLOTS = 202, 203  # purposes beside those of the runs
_GOLDEN_RATIO = 0.6180339887498949
_NEVER = np.iinfo(np.int64).max


class Row(NamedTuple):
    """How places are dealt to lanes: `steps` steps of `step_size` places are one row, and meet every lane."""

    step_size: int
    steps: int
    lanes: int

    @classmethod
    def of(cls, step_size: int, mix: int) -> Row:
        """Rows of steps that are mixed of as many lanes.

        Example:
            >>> Row.of(step_size=256, mix=64), Row.of(step_size=20, mix=64)
            (Row(step_size=256, steps=1, lanes=64), Row(step_size=20, steps=3, lanes=60))
        """
        steps = max(1, mix // step_size)
        return cls(step_size, steps, min(mix, steps * step_size))

    @property
    def size(self) -> int:
        """Places."""
        return self.step_size * self.steps


class Lanes:
    """An epoch's order of a share: which index stands at which of its places.

    Args:
        laid: The epoch's sequence.
        origin: The share's first place in there.
        sample_count: Its places, at least 1.
        row: How they are dealt to lanes.
        key: The epoch's key, 128 bits.
    """

    def __init__(self, laid: Laid, origin: int, sample_count: int, row: Row, key: int) -> None:
        self._origin, self._row, self._key = origin, row, _word(key, _SAMPLES)
        lanes = np.arange(row.lanes)
        ends = (lanes + 1) * row.size // row.lanes
        self._flat = lanes * row.size // row.lanes
        self._thick = ends - self._flat
        whole, left = divmod(sample_count, row.size)
        self._length = whole * self._thick + np.clip(left - self._flat, 0, self._thick)

        # Where a row is several steps, neighbouring lanes, which may lie in one run, would meet in one step.
        slot = permute(lanes.astype(np.uint64), row.lanes, _word(key, _SLOTS)) if row.steps > 1 else lanes
        by_slot = np.argsort(slot)
        self._start = np.empty_like(lanes)
        self._start[by_slot] = origin + np.cumsum(self._length[by_slot]) - self._length[by_slot]
        self._phase = self._phases(laid, lanes)
        self._cut(laid, origin + sample_count)

    def _phases(self, laid: Laid, lanes: I64) -> I64:
        """How far into its stretch each lane begins.

        Lane l is to begin l * stride % L of L parts into a run: each fraction once, and those of neighbouring lanes,
        which may be all that a consumer has of them, far apart as well (a stride of the golden ratio).
        """
        mean = max(1, int(laid.begin[-1]) // len(laid.begin))
        stride = next(each for each in count(round(lanes.size * _GOLDEN_RATIO)) if gcd(each, lanes.size) == 1)
        size, more = divmod(mean, lanes.size)
        part = lanes * stride % lanes.size
        inside = self._start - laid.begin[np.searchsorted(laid.begin, self._start, "right") - 1]
        # Where lanes are shorter than runs, most of them are pieces by themselves.
        return np.where(self._length > mean, (size * part + more * part // lanes.size - inside) % mean, 0)

    def _cut(self, laid: Laid, end: int) -> None:
        """Cut the share's runs into pieces."""
        used = self._length > 0
        cuts = np.unique(np.concatenate((self._start[used], (self._start + self._phase)[used])))
        cuts = cuts[laid.begin[np.searchsorted(laid.begin, cuts, "right") - 1] != cuts]
        inside = laid.begin[slice(*np.searchsorted(laid.begin, (self._origin, end)))]
        self._starts = np.insert(inside, np.searchsorted(inside, cuts), cuts)  # many runs, few cuts
        self.sizes = np.diff(self._starts, append=end)
        of = np.searchsorted(laid.begin, self._starts, "right") - 1
        self.firsts = laid.first[of] + self._starts - laid.begin[of]

    def __call__(self, places: U64) -> U64:
        """Give the indices at these places of the epoch."""
        at = self._sequence(places)
        piece = self._piece(at)
        by = np.argsort(piece, kind="stable")
        piece, at = piece[by], at[by]
        inner = (at - self._starts[piece]).astype(np.uint64)
        keys = self._starts[piece].astype(np.uint64) + self._key
        inner = permute_each(inner, self.sizes[piece].astype(np.uint64), keys, RANKED_AT_LEAST)
        indices = np.empty_like(places)
        indices[by] = self.firsts[piece].astype(np.uint64) + inner
        return indices

    def pieces(self, places: U64) -> I64:
        """Give the numbers of the pieces that these places of the epoch are of."""
        return self._piece(self._sequence(places))

    def steps(self, part: int, part_size: int, step_count: int) -> tuple[I64, I64]:
        """Say at which of the first so many steps each piece is first and last used; the first is later if at none.

        Args:
            part: Which part of every step is asked for.
            part_size: Places in a part.
            step_count: How many steps, all of them whole.
        """
        used = np.flatnonzero(self._length)
        used = used[np.argsort(self._start[used])]
        lane = used[np.searchsorted(self._start[used], self._starts, "right") - 1]
        thick, step = self._thick[lane], self._flat[lane] // self._row.step_size
        # Of a lane's places in a row, those in [begin, end) are of this part.
        inside = self._flat[lane] - step * self._row.step_size
        begin, end = (np.clip((part + edge) * part_size - inside, 0, thick) for edge in (0, 1))
        at = (self._starts - self._start[lane] - self._phase[lane]) % self._length[lane]
        first = np.maximum(0, -((end - 1 - at) // thick))
        last = np.minimum((at + self.sizes - 1 - begin) // thick, (step_count - 1 - step) // self._row.steps)
        unused = (begin == end) | (first > last)
        first, last = (row * self._row.steps + step for row in (first, last))
        return np.where(unused, _NEVER, first), np.where(unused, -1, last)

    def _piece(self, at: I64) -> I64:
        piece: I64 = np.searchsorted(self._starts, at, "right") - 1
        return piece

    def _sequence(self, places: U64) -> I64:
        """Where in the sequence these places of the epoch lie."""
        row, flat = np.divmod(places.astype(np.int64) - self._origin, self._row.size)
        lane = ((flat + 1) * self._row.lanes - 1) // self._row.size
        inside = row * self._thick[lane] + flat - self._flat[lane] + self._phase[lane]
        at: I64 = self._start[lane] + inside % self._length[lane]
        return at


def _word(key: int, purpose: int) -> U64:
    return np.array([derive(key, purpose) & WORD], np.uint64)
