"""How samples lie in files that MosaicML's streaming and LitData wrote, and how one becomes a table of ours, in place.

    u32 n | u32 offset[n + 1] | ... | samples          all little-endian; offsets are from the beginning of the file
    sample: u32 size of each field whose size is not the same in all | the fields, one behind the other

A table that was made so is nowhere but in memory. It has no checksums, unless they were made (`indexing.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import digest_of, wide_digest_of
from swift_loader.shards.catalog import Kind
from swift_loader.shards.encodings import NUMPY_DTYPES, static_array
from swift_loader.shards.fields import Field
from swift_loader.shards.opening import refuse_large
from swift_loader.shards.table import ENTRY_NBYTES, UNCHECKED, Origin, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.host.mapping import AnyFile

#: Files of these kinds have no tables, and need none.
IN_PLACE = (Kind.MDS, Kind.LITDATA)
MOST_COLUMNS = 4096
#: Sizes of small samples are picked out of pieces of so many bytes; of samples that are larger on average than the
#: second, each is read by itself.
_PIECE_NBYTES, _ALONE_NBYTES = 8 << 20, 32 << 10
_HEADS_AT_ONCE = 256


class Column(NamedTuple):
    """A field of all samples."""

    name: str
    encoding: str
    """In the words of `encodings.py`."""
    nbytes: int | None = None
    """The same in all samples; None: each sample says it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How all samples of a set lie.

    Attributes:
        columns: Fields, in the order in which they lie.
        tree: How LitData makes samples of them, in its words; empty: each is a dict.
    """

    columns: tuple[Column, ...]
    tree: str = ""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not 1 <= len(names) <= MOST_COLUMNS or len(set(names)) != len(names):
            raise ShardError.at(f"a sample has 1 to {MOST_COLUMNS} fields, each of another name", None, None, names[:8])

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def of(cls, told: Any) -> Layout:
        """From what `told` said.

        Raises:
            ShardError: if it is something else.
        """
        try:
            columns = tuple(Column(str(n), str(e), None if b is None else int(b)) for n, e, b in told["columns"])
            return cls(columns, str(told.get("tree", "")))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ShardError("the notes of the catalog do not tell how samples lie") from error

    @property
    def encodings(self) -> Mapping[str, str]:
        """Of each field, by its name."""
        return {column.name: column.encoding for column in self.columns}

    def table(self, file: AnyFile, samples: int, first: int = 0) -> Table:
        """The table of a file that has so many samples, ``first`` of which is the number in the set.

        Raises:
            ShardError: if they do not lie in it so.
        """
        ends = _offsets(file, samples)
        refuse_large(3 * samples * len(self.columns) * ENTRY_NBYTES)
        begins, sizes = self._places(file, ends)
        order = sorted(range(len(self.columns)), key=lambda number: self.columns[number].name)
        entries = np.zeros((samples, len(order), 3), "<u8")
        entries[..., 0], entries[..., 1] = begins[:, order], sizes[:, order]
        return Table(
            samples, tuple(_field(self.columns[at], sizes[:, at]) for at in order), file.nbytes, bytes(16), entries, {},
            np.empty(0, "<u8"), memoryview(b""), Origin(first), UNCHECKED,
        )  # fmt: skip

    @property
    def kind(self) -> Kind:
        """Of the files."""
        return Kind.LITDATA if self.tree else Kind.MDS

    def checked_table(self, file: AnyFile, samples: int, first: int = 0) -> Table:
        """The same with checksums, for which all of the file is read; it may be written beside it.

        Raises:
            ShardError: if they do not lie in it so, or fields are called as tables have none.
        """
        table = self.table(file, samples, first)
        for field in table.fields:
            field.check()
        data: Any = memoryview(file.data)  # type: ignore[arg-type] # numpy's arrays are buffers
        entries = table.entries
        refuse_large(2 * entries.nbytes)
        places = entries[..., :2].tolist()
        entries[..., 2] = [[digest_of(data[begin : begin + nbytes]) for begin, nbytes in each] for each in places]
        return replace(table, payload_digest=wide_digest_of(data), flags=0)

    def _places(self, file: AnyFile, ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each field of each sample begins, and its size."""
        varying = [number for number, column in enumerate(self.columns) if column.nbytes is None]
        sizes = np.empty((len(ends) - 1, len(self.columns)), np.int64)
        for number, column in enumerate(self.columns):
            sizes[:, number] = column.nbytes or 0
        if varying:
            sizes[:, varying] = _heads(file, ends, 4 * len(varying)).view("<u4")
        inside = np.cumsum(sizes, axis=1)
        begins = ends[:-1, None] + 4 * len(varying) + inside - sizes
        wrong = np.flatnonzero(begins[:, -1] + sizes[:, -1] != ends[1:])
        if len(wrong):
            at = int(wrong[0])
            found = int(ends[at] + 4 * len(varying) + inside[at, -1])
            raise ShardError.at(f"the fields of sample {at} do not fill it", int(ends[at]), int(ends[at + 1]), found)
        return begins, sizes


def _offsets(file: AnyFile, samples: int) -> NDArray[np.int64]:
    nbytes = 4 * (samples + 2)
    if not 1 <= samples <= file.nbytes // 4 - 2:
        raise ShardError.at("the file is too small for its samples", None, nbytes, file.nbytes)
    refuse_large(3 * nbytes)
    head = np.empty(nbytes, np.uint8)
    file.copy(0, head)
    return offsets_in(head, samples, file.nbytes)


def offsets_in(head: NDArray[np.uint8], samples: int, nbytes: int) -> NDArray[np.int64]:
    """Where each sample begins, and the last one ends, as the head of a file of so many bytes says.

    Raises:
        ShardError: if that cannot be.
    """
    told = head.view("<u4")
    if int(told[0]) != samples:
        raise ShardError.at("the file has another number of samples", 0, samples, int(told[0]))
    ends = told[1:].astype(np.int64)
    if int(ends[0]) < head.nbytes or int(ends[-1]) > nbytes or bool((ends[1:] < ends[:-1]).any()):
        raise ShardError.at("samples do not lie one behind the other in the file", 4, nbytes, int(ends.max()))
    return ends


def _heads(file: AnyFile, ends: NDArray[np.int64], nbytes: int) -> NDArray[np.uint8]:
    """The first so many bytes of each sample."""
    count = len(ends) - 1
    short = np.flatnonzero(ends[1:] - ends[:-1] < nbytes)
    if len(short):
        at = int(short[0])
        text = f"sample {at} has no room for the sizes of its fields (LitData: rows in Arrow's form are not read)"
        raise ShardError.at(text, int(ends[at]), nbytes, int(ends[at + 1] - ends[at]))
    heads = np.empty((count, nbytes), np.uint8)
    if int(ends[-1] - ends[0]) > count * _ALONE_NBYTES:
        for begun in range(0, count, _HEADS_AT_ONCE):
            begins = ends[begun : min(begun + _HEADS_AT_ONCE, count)]
            file.bring(begins, begins + nbytes)
            for head, begin in zip(heads[begun:], begins.tolist(), strict=False):
                file.copy(begin, head)
        return heads
    first = 0
    while first < count:
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _PIECE_NBYTES, "right")) - 1)
        piece = np.empty(int(ends[last - 1] + nbytes - ends[first]), np.uint8)
        file.copy(int(ends[first]), piece)
        places = ends[first:last, None] - ends[first] + np.arange(nbytes)
        heads[first:last] = piece[places]
        first = last
    return heads


def _field(column: Column, sizes: NDArray[np.int64]) -> Field:
    """The field; with dtype and shape if the encoding tells them, or if it does but for a length that all have."""
    kind, _, rest = column.encoding.partition(":")
    size = int(sizes[0])
    dtype, shape = static_array(column.encoding)
    if kind in ("array", "tensor") and rest in NUMPY_DTYPES:
        dtype = np.dtype(rest).str
        shape = (size // np.dtype(dtype).itemsize,)
    field = Field(column.name, dtype, shape or ()) if dtype and shape is not None else Field(column.name)
    is_alike = field.array_nbytes == size > 0 and bool((sizes == size).all())
    return field if is_alike else Field(column.name)
