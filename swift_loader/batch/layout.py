"""Where the bytes of a batch lie in a slot. Pure.

A batch is made of columns, one for each numeric leaf of a sample, laid one behind the other in the slot for
``capacity`` rows, and of objects, which are encoded behind the columns (or sent in the parcel where they are small).
Everything that the landing side must know to rebuild a batch, apart from how many rows were filled, stands here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from swift_loader.batch.tree import Leaf, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Columns begin at multiples of this: a cache line, and enough for any vector load.
ALIGNMENT = 64

#: "array" lands as a tensor, "objects" as a list with one entry for each sample.
ColumnKind = Literal["array", "objects"]


@dataclass(frozen=True, slots=True)
class Column:
    """One leaf of the samples, for all rows of a batch."""

    kind: ColumnKind
    dtype: str = ""
    """numpy's name of the dtype that is stored, in native byte order."""
    shape: tuple[int, ...] = ()
    """The shape of one sample's leaf."""
    viewed_as: str = ""
    """torch's name of the dtype, where numpy has none for it (bfloat16) and its bits are stored as integers."""
    row_nbytes: int = 0

    @property
    def name(self) -> str:
        """The dtype as torch calls it."""
        return self.viewed_as or self.dtype


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """The make of a batch. Equal specs mean equal places of all bytes."""

    kind: Literal["columns", "object", "encoded"]
    """A batch of columns; one object of the user's collate; bytes of the user's encoder."""
    structure: Node
    columns: tuple[Column, ...]
    capacity: int
    offsets: tuple[int, ...]
    nbytes: int
    object_count: int
    """How many columns are lists of objects."""

    @property
    def key(self) -> int:
        """Stands for this very object in the caches of one process, where comparing whole specs would cost too much."""
        return id(self)

    @property
    def largest_dtype(self) -> str:
        """Of the column that takes most bytes, as torch calls it; empty where there is none."""
        return max(self.columns, key=lambda column: column.row_nbytes).name if self.columns else ""

    def with_column(self, position: int, column: Column) -> BatchSpec:
        """The same places with one column read otherwise, for a batch whose later samples asked for it."""
        columns = (*self.columns[:position], column, *self.columns[position + 1 :])
        return replace(self, columns=columns, object_count=_count_objects(columns))

    def with_room(self, positions: Iterable[int], end: int) -> BatchSpec:
        """These columns from ``end`` on instead of where they were, and all others where they are."""
        offsets = list(self.offsets)
        for position in positions:
            offsets[position] = end
            end = aligned(end + self.columns[position].row_nbytes * self.capacity)
        return replace(self, offsets=tuple(offsets), nbytes=max(end, self.nbytes))


def lay_out(structure: Node, columns: tuple[Column, ...], capacity: int) -> BatchSpec:
    """Places the columns one behind the other."""
    offsets, end = [], 0
    for column in columns:
        offsets.append(end)
        end = aligned(end + column.row_nbytes * capacity)
    return BatchSpec("columns", structure, columns, capacity, tuple(offsets), end, _count_objects(columns))


def _count_objects(columns: tuple[Column, ...]) -> int:
    return sum(column.kind == "objects" for column in columns)


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


#: A batch that is one object of the user's collate_fn.
OBJECT = BatchSpec("object", Leaf("batch"), (Column("objects"),), 1, (0,), 0, 1)

#: A batch that is the bytes of the user's batch_encoder.
ENCODED = BatchSpec("encoded", Leaf("batch"), (), 1, (), 0, 0)
