"""Rows of arrays in files as a map-style dataset: what numpy saved, and raw numbers, read where they lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.mapping import MappedFile
from swift_loader.plan.runs import extents
from swift_loader.shards.beside import ENDING
from swift_loader.shards.folder import Folder
from swift_loader.shards.numbering import place, places
from swift_loader.shards.rows import RawRows, RowReader, rows_in
from swift_loader.shards.sets import matched
from swift_loader.shards.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A path, a pattern, or raw numbers.
Files = str | os.PathLike[str] | RawRows


class ArrayDataset:
    """A sample is a row of each array.

    Args:
        arrays: the files of each: a path or a pattern of ``.npy`` files, whose rows follow each other in the order of
            names, or `RawRows`. A dict gives dicts, a tuple tuples, one alone the row itself.
        transform: called with each sample.

    Rows are checked where they land if their files have tables beside them (``swift_loader.shards.index("x.npy")``).

    Example:
        >>> dataset = ArrayDataset({"x": "x-*.npy", "y": "y.npy"})
        >>> dataset = ArrayDataset(RawRows("tokens-*.bin", "uint16", (512,)))
    """

    def __init__(
        self,
        arrays: Files | Mapping[str, Files] | Sequence[Files],
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.transform = transform
        self._given = arrays
        self._names: list[str] | None = list(arrays) if isinstance(arrays, Mapping) else None
        self._is_alone = isinstance(arrays, str | os.PathLike | RawRows)
        self._arrays = [_Array(files) for files in _each(arrays)]
        lengths = {len(array) for array in self._arrays}
        if len(lengths) > 1:
            told = ", ".join(f"{array!r}: {len(array):,}" for array in self._arrays)
            raise ConfigError(f"arrays have different numbers of rows: {told}")

    def __len__(self) -> int:
        return len(self._arrays[0])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([place(index, len(self))])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples at once, as torch and SwiftLoader ask for those of a batch."""
        columns = [array.empty(len(indices)) for array in self._arrays]
        self._fill(indices, columns)
        if self._is_alone:
            samples = list(columns[0])
        elif self._names is None:
            samples = list(zip(*columns, strict=True))
        else:
            samples = [dict(zip(self._names, each, strict=True)) for each in zip(*columns, strict=True)]
        return samples if self.transform is None else list(map(self.transform, samples))

    @property
    def read_into(self) -> Callable[[Sequence[int], Any], None]:
        """Writes samples to their rows in a batch; only where there is no transform."""
        if self.transform is not None:
            raise AttributeError("samples of this dataset have no rows: there is a transform")
        return self._read_into

    def _read_into(self, indices: Sequence[int], rows: Any) -> None:
        if self._is_alone:
            self._fill(indices, [rows])
        else:
            self._fill(indices, list(rows) if self._names is None else [rows[name] for name in self._names])

    def _fill(self, indices: Sequence[int], columns: Sequence[Any]) -> None:
        wanted = places(indices, len(self))
        for array, column in zip(self._arrays, columns, strict=True):
            array.read(wanted, column)

    def runs(self) -> NDArray[np.int64]:
        """How many samples lie side by side in each stretch of a few megabytes of the largest array."""
        largest = max(self._arrays, key=lambda array: array.row_nbytes)
        counts = np.array(largest.counts)
        return extents(counts, counts * largest.row_nbytes)

    def __reduce__(self) -> Any:
        return type(self), (self._given, self.transform)  # each process maps the files itself

    def __repr__(self) -> str:
        return f"<ArrayDataset {self._given!r}, {len(self):,} samples>"


def _each(arrays: Files | Mapping[str, Files] | Sequence[Files]) -> list[Files]:
    if isinstance(arrays, str | os.PathLike | RawRows):
        return [arrays]
    each = list(arrays.values() if isinstance(arrays, Mapping) else arrays)
    if not each or not all(isinstance(files, str | os.PathLike | RawRows) for files in each):
        raise ConfigError(f"arrays are files by their names, such as {{'x': 'x.npy'}}, not {arrays!r}")
    return each


class _Array:
    """Rows of one or several files, one behind the other."""

    def __init__(self, files: Files) -> None:
        given = files if isinstance(files, RawRows) else None
        self._files = os.fspath(files.files if isinstance(files, RawRows) else files)
        folder, names = matched(self._files)
        opened = [_opened(Folder(folder), name, given) for name in names]
        kinds = {(table.fields[0].dtype, table.fields[0].shape) for table, _ in opened}
        if len(kinds) > 1:
            raise ConfigError(f"{self._files} has rows of several kinds: {sorted(kinds)}")
        ((self._dtype, self._shape),) = kinds
        self._readers = [reader for _, reader in opened]
        self._places = [str(Path(folder, name)) for name in names]
        self.counts = [table.samples for table, _ in opened]
        self.row_nbytes = self._readers[0].nbytes
        self._bounds = np.concatenate(([0], np.cumsum(self.counts)))

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def __repr__(self) -> str:
        return self._files

    def empty(self, count: int) -> Any:
        return np.empty((count, *self._shape), self._dtype)

    def read(self, indices: NDArray[np.int64], column: Any) -> None:
        """Puts rows to where they are wanted: an array of that many, of the same dtype and shape."""
        if (column.shape, column.dtype.str) != ((len(indices), *self._shape), self._dtype):
            found = f"{column.dtype} {column.shape}"
            raise ShardError.at(f"rows of {self._files} do not fit", None, f"{self._dtype} {self._shape}", found)
        if not len(indices):
            return
        rows = column if column.flags.c_contiguous else np.empty_like(column, order="C")
        flat = rows.reshape(len(rows), -1).view(np.uint8)
        if len(self._readers) == 1:
            self._read(0, indices, flat)
        else:
            which = np.searchsorted(self._bounds, indices, "right") - 1
            for number in np.unique(which).tolist():
                places = np.flatnonzero(which == number)
                part = np.empty((len(places), self.row_nbytes), np.uint8)
                self._read(number, indices[places] - self._bounds[number], part)
                flat[places] = part
        if rows is not column:
            column[...] = rows

    def _read(self, number: int, rows: NDArray[np.int64], target: Any) -> None:
        try:
            damaged = self._readers[number].read(rows, target)
        except OSError as error:
            raise ShardError(f"rows cannot be read: {error.strerror}").within(self._places[number]) from error
        if damaged is not None:
            row = int(rows[damaged])
            raise ShardError(f"row {row} is damaged: its checksum is wrong").within(self._places[number])


def _opened(folder: Folder, name: str, given: RawRows | None) -> tuple[Table, RowReader]:
    try:
        file = MappedFile(folder.open(name))
        bare = rows_in(file, given).table(file)
        try:
            data = folder.whole(name + ENDING)
        except FileNotFoundError:
            return bare, RowReader(file, bare)
        table = Table.read(data, file.nbytes)
        if (table.rows, table.fields, table.payload_nbytes) != (bare.rows, bare.fields, file.nbytes):
            raise ShardError("the table beside it is of another file: remove it, and make it anew")
        return table, RowReader(file, table)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {name!r} in {folder.where}") from None
    except ShardError as error:
        raise error.within(name, folder.where) from error.__cause__
