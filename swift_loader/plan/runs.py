"""Which neighbours of a dataset are cheap to read together, and the sequence that an epoch lays them in.

A run is a shard or a part of one, a row group, a chunk, a video. It knows nothing of what is read, nor of consumers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from swift_loader.errors import ConfigError
from swift_loader.plan.permute import WORD, permute
from swift_loader.plan.seeding import derive

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

I64 = NDArray[np.int64]

_RUNS, _BEGINNING, _GROUPS = 200, 201, 204  # purposes beside those of other orders


class Runs:
    """Lengths of runs of neighbours, in the order of the dataset.

    Args:
        lengths: One for each run; or runs, whose groups it has then too.
        groups: The runs of each part of an epoch, of so many equal ones, are the same in all epochs.

    Example:
        >>> runs = Runs([3, 0, 2])
        >>> len(runs), runs.sample_count
        (3, 5)
    """

    def __init__(self, lengths: ArrayLike | Runs, groups: int = 1) -> None:
        self.groups = groups
        if isinstance(lengths, Runs):
            self.groups, lengths = lengths.groups, lengths.lengths
        given = np.asarray(lengths)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu") or (given < 0).any():
            raise ConfigError(
                f"runs are one list of whole numbers >= 0, the lengths of neighbours, not {lengths!r:.200}"
            )
        if given.astype(np.float64).sum() > 1 << 62:
            raise ConfigError("runs have at most 2**62 samples together")
        if self.groups < 1:
            raise ConfigError(f"runs are of at least 1 group, not {groups}")
        self.lengths: I64 = given.astype(np.int64)
        self.sample_count = int(self.lengths.sum())

    def __len__(self) -> int:
        return self.lengths.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Runs):
            return False
        return self.groups == other.groups and np.array_equal(self.lengths, other.lengths)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Runs({len(self)} of {self.sample_count} samples)"

    @property
    def digest(self) -> str:
        """What differs where lengths or groups differ."""
        groups = b"" if self.groups == 1 else str(self.groups).encode()
        return blake2b(self.lengths.tobytes() + groups, digest_size=8).hexdigest()

    def laid(self, key: int, lasting: int = 0) -> Laid:
        """Lay them end to end in the random order that a key names; which are of one group a lasting key says."""
        number = np.flatnonzero(self.lengths)
        count = number.size
        if self.groups == 1:
            number = number[_shuffled(count, key, _RUNS)]
        else:
            number = number[_shuffled(count, lasting, _GROUPS)]
            shares = np.arange(1, self.groups) * (self.sample_count / self.groups)
            parts = np.split(number, np.searchsorted(np.cumsum(self.lengths[number]), shares))
            keys = (derive(key, _GROUPS + group) for group in range(self.groups))
            number = np.concatenate([
                part[_shuffled(part.size, own, _RUNS)] for part, own in zip(parts, keys, strict=True)
            ])  # fmt: skip
        firsts, sizes = (np.cumsum(self.lengths) - self.lengths)[number], self.lengths[number]
        if count:
            # The sequence is a circle that begins somewhere in its first run: else few runs would be cut at the same
            # places in every epoch.
            ahead = derive(key, _BEGINNING) * int(sizes[0]) >> 128
            number, firsts = np.append(number, number[0]), np.append(firsts, firsts[0])
            sizes = np.append(sizes, ahead)
            firsts[0] += ahead
            sizes[0] -= ahead
        return Laid(number, firsts, np.cumsum(sizes) - sizes)


class Laid(NamedTuple):
    """Runs, end to end. The first one's beginning is the end."""

    number: I64
    """Which run of the dataset."""
    first: I64
    """Its first sample."""
    begin: I64
    """Where in the sequence it begins."""


def extents(counts: ArrayLike, nbytes: ArrayLike, target: int = 8 << 20) -> I64:
    """Cut objects into runs of about so many bytes, those of an object of equal lengths but for one sample.

    Args:
        counts: Samples of each object.
        nbytes: Size of each object.
        target: Bytes per run. A sample that is larger is a run of its own.

    Returns:
        Lengths of runs, in the order of the dataset.

    Example:
        >>> extents(counts=[10, 3], nbytes=[300, 90], target=100).tolist()
        [4, 3, 3, 3]
    """
    if target < 1:
        raise ConfigError(f"a run has at least 1 byte, not {target}")
    many, large = np.asarray(counts, np.int64), np.asarray(nbytes, np.int64)
    parts = np.clip((large + target // 2) // target, np.minimum(many, 1), many)
    which = np.repeat(np.arange(many.size), parts)
    place = np.arange(which.size) - (np.cumsum(parts) - parts)[which]
    lengths: I64 = many[which] // parts[which] + (place < many[which] % parts[which])
    return lengths


def _shuffled(count: int, key: int, purpose: int) -> I64:
    order: I64 = permute(np.arange(count, dtype=np.uint64), count, _word(key, purpose)).astype(np.int64)
    return order


def _word(key: int, purpose: int) -> NDArray[np.uint64]:
    return np.array([derive(key, purpose) & WORD], np.uint64)
