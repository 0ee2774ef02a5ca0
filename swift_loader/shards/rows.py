"""Files of rows that are all of one size, without anything between them: .npy and .bin, as numpy and many others write.

Such a file has no table. It may have one beside it (`indexing.py`), and that has a checksum for each row: then rows are
checked where they land, like all samples.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.xxhash import WideDigest, digests_of_rows
from swift_loader.settings.checks import whole
from swift_loader.shards.catalog import Kind
from swift_loader.shards.fields import Field
from swift_loader.shards.npy import head_of
from swift_loader.shards.opening import refuse_large
from swift_loader.shards.table import UNCHECKED, Origin, Rows, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.host.mapping import MappedFile

_HEAD_NBYTES = 4096
_PIECE_NBYTES = 1 << 20
#: What the one field of a row is called in a set.
FIELD = "x"


@dataclass(frozen=True, slots=True)
class RawRows:
    """Files of rows that do not tell what they are.

    Args:
        files: a path, or a pattern.
        dtype: of each number.
        shape: of a row; ``()`` for one number.
        offset: so many bytes come before the first row.

    Example:
        >>> RawRows("train_*.bin", "uint16", (512,)).row_nbytes
        1024
    """

    files: str | os.PathLike[str]
    dtype: str
    shape: tuple[int, ...] = ()
    offset: int = 0

    kind: ClassVar[Kind] = Kind.ROWS

    def __post_init__(self) -> None:
        whole("offset", self.offset, least=0)
        try:
            field = Field(FIELD, np.dtype(self.dtype).str, tuple(int(side) for side in self.shape))
            field.check()
        except (TypeError, ValueError, ShardError) as error:
            raise ConfigError(f"there are no rows of dtype {self.dtype!r} and shape {self.shape!r}: {error}") from None
        if min(self.shape, default=1) < 1 or not field.dtype:
            raise ConfigError(f"a row has at least one number, and not the shape {self.shape!r}")

    @property
    def row_nbytes(self) -> int:
        """Of each row."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"dtype": self.dtype, "shape": self.shape, "offset": self.offset}

    def table(self, file: MappedFile, first: int = 0) -> Table:
        """The table of a file, which has no checksums and is in memory alone.

        Raises:
            ShardError: if the file is no such rows.
        """
        count, rest = divmod(file.nbytes - self.offset, self.row_nbytes)
        if count < 1 or rest:
            raise ShardError.at(
                f"the file is no rows of {self.row_nbytes:,} bytes each", self.offset, None, file.nbytes
            )
        none: NDArray[np.uint64] = np.broadcast_to(np.zeros((), "<u8"), (count, 1, 1))
        return Table(
            count, (Field(FIELD, np.dtype(self.dtype).str, self.shape),), file.nbytes, bytes(16), none, {},
            np.empty(0, "<u8"), memoryview(b""), Origin(first), UNCHECKED, Rows(self.offset, self.row_nbytes),
        )  # fmt: skip


def rows_in(file: MappedFile, given: RawRows | None = None) -> RawRows:
    """What the rows of a file are: as .npy tells it, or as it was ``given``.

    Raises:
        ShardError: if it does not tell, or they are no rows.
    """
    if given is not None:
        return given
    head = np.empty(min(_HEAD_NBYTES, file.nbytes), np.uint8)
    file.copy(0, head)
    told = head_of(head.tobytes())
    if told is None or not told.shape:
        raise ShardError("this is no .npy file of rows: of numbers, in C's order, with at least one dimension")
    count, *shape = told.shape
    rows = RawRows("", told.dtype, tuple(shape), told.nbytes)
    if count * rows.row_nbytes + rows.offset != file.nbytes:
        expected = count * rows.row_nbytes + rows.offset
        raise ShardError.at("the file has another size than its array", None, expected, file.nbytes)
    return rows


def checked_rows(file: MappedFile, given: RawRows | None = None, first: int = 0) -> Table:
    """The table of a file with checksums, for which all of it is read; it may be written beside it."""
    bare = rows_in(file, given).table(file, first)
    assert bare.rows is not None
    offset, nbytes = bare.rows.offset, bare.rows.nbytes
    refuse_large(16 * bare.samples)
    digests = np.empty((bare.samples, 1, 1), "<u8")
    whole_digest = WideDigest()
    head = np.empty(offset, np.uint8)
    file.copy(0, head)
    whole_digest.update(head.data)
    step = max(1, _PIECE_NBYTES // nbytes)
    piece = np.empty((min(step, bare.samples), nbytes), np.uint8)
    for begin in range(0, bare.samples, step):
        rows = piece[: bare.samples - begin]
        file.copy(offset + begin * nbytes, rows.reshape(-1))
        whole_digest.update(rows.data)
        digests[begin : begin + len(rows), 0, 0] = digests_of_rows(rows)
    field = bare.fields
    return Table(
        bare.samples, field, file.nbytes, whole_digest.digest(), digests, {}, bare.key_ends, bare.key_bytes,
        bare.origin, 0, bare.rows,
    )  # fmt: skip


class RowReader:
    """Takes rows out of a file."""

    def __init__(self, file: MappedFile, table: Table) -> None:
        assert table.rows is not None
        self.nbytes = table.rows.nbytes
        self._file, self._offset = file, table.rows.offset
        end = self._offset + table.samples * self.nbytes
        if file.nbytes < end:
            raise ShardError.at("the file is shorter than its rows", None, end, file.nbytes)
        self._rows = file.data[self._offset : end].reshape(table.samples, self.nbytes)
        self._digests = None if table.flags & UNCHECKED else table.entries[:, 0, 0]

    def read(self, numbers: NDArray[np.int64], rows: Any) -> int | None:
        """Puts rows to places that lie side by side, and checks them there.

        Args:
            numbers: which, as an array.
            rows: bytes, of two dimensions, in one piece.

        Returns:
            The place of one that is damaged, if there is one.

        Raises:
            OSError: if the file is shorter now, or the disk fails.
        """
        if self._file.is_there() or self._file.are_there(
            begins := numbers * self.nbytes + self._offset, begins + self.nbytes
        ):
            np.take(self._rows, numbers, axis=0, out=rows, mode="clip")
        else:
            for begin, row in zip(begins.tolist(), rows, strict=True):
                self._file.copy(begin, row)
        if self._digests is None:
            return None
        wrong = digests_of_rows(rows) != self._digests[numbers]
        return int(wrong.argmax()) if wrong.any() else None
