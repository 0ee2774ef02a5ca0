"""The default collate: samples go straight to their rows in a slot, each byte written once.

The first sample of a batch fixes the layout; every later leaf is checked against it and written to its place, so a
batch is a function of its own samples, whichever worker makes it. Knows numpy and, if the dataset brought it, torch;
knows nothing of slots beyond an array of bytes, nor of workers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from swift_loader.batch.layout import BatchSpec, Column, lay_out
from swift_loader.batch.rowcode import Ways, row_functions
from swift_loader.batch.spare import Spare
from swift_loader.batch.tensors import as_array, stored_as
from swift_loader.batch.tree import Mismatch, describe

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Array: TypeAlias = npt.NDArray[Any]
    Write: TypeAlias = Callable[[int, Any], None]


class Misfit(Exception):
    """A leaf does not fit the layout that the first sample of its batch fixed."""

    def __init__(self, path: str, row: int, found: str, expected: str) -> None:
        super().__init__(path, row, found, expected)
        self.path, self.row, self.found, self.expected = path, row, found, expected


class Unbatchable(Exception):
    """A leaf of a type that the default collate does not know."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(path, found)
        self.path, self.found = path, found


def spec_of(sample: Any, capacity: int) -> BatchSpec:
    """The layout that ``sample`` fixes for a batch of ``capacity`` rows."""
    structure = describe(sample)
    ends = zip(structure.ends(), structure.leaves(sample), strict=True)
    return lay_out(structure, tuple(_column_of(leaf, end.path) for end, leaf in ends), capacity)


def column_views(spec: BatchSpec, memory: Bytes) -> list[Array | None]:
    """The arrays of a batch in its slot, of ``capacity`` rows each; None where the column is objects."""
    return [
        np.ndarray((spec.capacity, *column.shape), column.dtype, memory, offset) if column.kind == "array" else None
        for column, offset in zip(spec.columns, spec.offsets, strict=True)
    ]


class RowWriter:
    """Writes the samples of one batch after the other to their rows in one slot."""

    def __init__(self, spec: BatchSpec, memory: Bytes, *, ragged: bool) -> None:
        self._plain_spec = self._spec = spec
        self._ragged = ragged
        self._spare: Spare | None = None
        self._views = column_views(spec, memory)
        self._paths = [end.path for end in spec.structure.ends()]
        self._objects: list[list[Any]] = [[] for _ in spec.columns]
        self._plain_writes = [self._write_for(position) for position in range(len(spec.columns))]
        self._writes = list(self._plain_writes)
        fits = [partial(_fixes, column, path) for column, path in zip(spec.columns, self._paths, strict=True)]
        ways = Ways(self._write_slowly, self._plain_writes, fits)
        functions = row_functions(spec.structure, spec.columns, self._views, ways)
        self._write_plainly, self.fits, self.fill = functions.write, functions.fits, functions.fill
        """``fits``: whether a sample, as the first of a batch, fixes this very layout. For ``fill`` see there."""
        self.write = self._write_plainly
        """Writes one sample to a row; rows come in order. Raises `Misfit` where it does not fit the batch's first.

        To be looked up for each sample: a sample may change how those after it are written.
        """

    def begin(self, spare: Spare | None = None) -> None:
        """Forgets the batch before. Arrays in ``spare`` are nobody else's, and lie where they may stay."""
        self._spare = spare
        if self._spec is not self._plain_spec:
            self._spec = self._plain_spec
            self._writes = list(self._plain_writes)
            self.write = self._write_plainly
        for values in self._objects:
            values.clear()

    def leaves(self, count: int) -> list[Any]:
        """The columns' first ``count`` rows."""
        return [view[:count] for view in self._views if view is not None]

    def rows(self, count: int) -> Any:
        """The first ``count`` rows as arrays in the sample's structure, for a dataset that writes them itself."""
        return self._plain_spec.structure.build(iter(self.leaves(count)))

    def finish(self) -> tuple[BatchSpec, list[list[Any]]]:
        """The layout as this batch left it, and its columns of objects."""
        columns = zip(self._spec.columns, self._objects, strict=True)
        return self._spec, [values for column, values in columns if column.kind == "objects"]

    def _write_slowly(self, row: int, sample: Any) -> None:
        try:
            for write, leaf in zip(self._writes, self._plain_spec.structure.leaves(sample), strict=True):
                write(row, leaf)
        except Mismatch as error:
            raise Misfit(error.path, row, error.found, error.expected) from None

    def _write_for(self, position: int) -> Write:
        column, view, path = self._plain_spec.columns[position], self._views[position], self._paths[position]
        if view is None:
            return _object_write(self._objects[position].append, path)
        if column.shape == () and column.dtype in ("int64", "float64") and not column.viewed_as:
            return self._number_write(position, view)
        return self._array_write(position, view)

    def _array_write(self, position: int, view: Array) -> Write:
        column, path = self._spec.columns[position], self._paths[position]
        dtype, shape, expected = view.dtype, column.shape, _phrase(column, None)
        ndarray = None if column.viewed_as else np.ndarray

        def write(row: int, leaf: Any) -> None:
            if type(leaf) is ndarray and leaf.dtype == dtype and leaf.shape == shape:
                view[row] = leaf
                return
            found = _column_in_row(leaf, path, row, expected)
            if found == column:
                view[row] = as_array(leaf)
            elif self._ragged and (found.dtype, found.viewed_as) == (column.dtype, column.viewed_as):
                self._turn_ragged(position, row)
                self._writes[position](row, leaf)
            else:
                raise Misfit(path, row, _phrase(found, leaf), expected)

        return write

    def _number_write(self, position: int, view: Array) -> Write:
        """For a Python int or float. A float among ints makes the batch's column floats, as torch's collate does."""
        general = self._array_write(position, view)
        exact: tuple[type, ...] = (int,) if view.dtype == np.int64 else (float, int)
        path = self._paths[position]

        def write(row: int, leaf: Any) -> None:
            try:
                if type(leaf) in exact:
                    view[row] = leaf
                elif type(leaf) is float:
                    self._turn_float(position, row)
                    self._writes[position](row, leaf)
                else:
                    general(row, leaf)
            except OverflowError:  # not its digits: there may be a million of them
                raise Misfit(path, row, f"an integer of {leaf.bit_length()} bits", "a number of 64 bits") from None

        return write

    def _turn_float(self, position: int, row: int) -> None:
        view = self._views[position]
        assert view is not None
        floats = view.view(np.float64)  # as wide as int64: the rows stay where they are
        floats[:row] = view[:row].copy()
        self._spec = self._spec.with_column(position, Column("array", "float64", row_nbytes=8))
        self._writes[position] = self._number_write(position, floats)
        self.write = self._write_slowly

    def _turn_ragged(self, position: int, row: int) -> None:
        view, column = self._views[position], self._spec.columns[position]
        assert view is not None
        written = view[:row].view(column.dtype)  # ints may have turned into floats
        values = self._objects[position]
        values.extend(np.array(value) for value in written)
        listed = Column("objects", column.dtype, (), column.viewed_as)
        self._spec = self._spec.with_column(position, listed)
        path, expected = self._paths[position], f"dtype {column.viewed_as or column.dtype}"
        ndarray, dtype = None if column.viewed_as else np.ndarray, np.dtype(column.dtype)

        def write(row: int, leaf: Any) -> None:
            if type(leaf) is ndarray and leaf.dtype == dtype and leaf.ndim < _MAX_DIMENSIONS:
                values.append(self._own(leaf))
                return
            found = _column_in_row(leaf, path, row, expected)
            if (found.kind, found.dtype, found.viewed_as) != ("array", column.dtype, column.viewed_as):
                raise Misfit(path, row, _phrase(found, leaf), expected)
            values.append(self._own(np.asarray(as_array(leaf), column.dtype)))

        self._writes[position] = write
        self.write = self._write_slowly

    def _own(self, array: Array) -> Array:
        """The array, or a copy of it where its memory may be the dataset's own, filled anew for the next sample."""
        return array.copy() if self._spare is None or self._spare.place_of(array) is None else array


def _object_write(append: Callable[[Any], None], path: str) -> Write:
    def write(row: int, leaf: Any) -> None:
        if (column := _column_in_row(leaf, path, row, _OBJECT_LEAVES)).kind != "objects":
            raise Misfit(path, row, _phrase(column, leaf), _OBJECT_LEAVES)
        # An array's memory, or a record's, may be the dataset's own, filled anew for the next sample.
        append(leaf.copy() if isinstance(leaf, np.ndarray | np.void) else leaf)

    return write


def _fixes(column: Column, path: str, leaf: Any) -> bool:
    try:
        return _column_of(leaf, path) == column
    except Unbatchable:
        return False


_INT, _FLOAT, _OBJECTS = (
    Column("array", "int64", row_nbytes=8),
    Column("array", "float64", row_nbytes=8),
    Column("objects"),
)
_OTHER_NUMBERS = (
    (bool, Column("array", "bool", row_nbytes=1)),
    (int, _INT),
    (float, _FLOAT),
    (complex, Column("array", "complex128", row_nbytes=16)),
)
_OBJECT_LEAVES = "str, bytes or None"
#: What numpy allows; a batch's array has one dimension more than a sample's.
_MAX_DIMENSIONS = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32


def _column_in_row(leaf: Any, path: str, row: int, expected: str) -> Column:
    """As `_column_of`, for a sample after the first: what cannot be batched at all does not fit it."""
    try:
        return _column_of(leaf, path)
    except Unbatchable as error:
        raise Misfit(path, row, f"a {error.found}", expected) from None


def _column_of(leaf: Any, path: str) -> Column:
    kind = type(leaf)
    if kind is int:
        return _INT
    if kind is float:
        return _FLOAT
    if leaf is None or isinstance(leaf, str | bytes):
        return _OBJECTS
    if isinstance(leaf, np.ndarray | np.generic):
        return _numpy_column(leaf, path)
    for number, column in _OTHER_NUMBERS:
        if isinstance(leaf, number):
            return column
    torch = sys.modules.get("torch")  # never imported for this: a tensor can only be here if torch is
    if torch is not None and isinstance(leaf, torch.Tensor):
        return _tensor_column(leaf, path)
    raise Unbatchable(path, kind.__name__)


def _numpy_column(leaf: Any, path: str) -> Column:
    if isinstance(leaf, np.ma.MaskedArray):
        raise Unbatchable(path, "MaskedArray, whose mask would be lost")
    dtype = leaf.dtype
    if dtype.kind not in "biufc" or dtype.char in "gG":  # torch has no place for text, dates, records, long doubles
        return _OBJECTS
    _refuse_many_dimensions(leaf, path)
    return Column("array", dtype.name, leaf.shape, row_nbytes=leaf.nbytes)


def _refuse_many_dimensions(leaf: Any, path: str) -> None:
    if leaf.ndim >= _MAX_DIMENSIONS:
        raise Unbatchable(path, f"{leaf.ndim}-dimensional array, which leaves no dimension for the batch")


def _refuse_without_bytes(leaf: Any, path: str) -> None:
    """A subclass may be more than its bytes, such as a masked tensor, or have none."""
    try:
        as_array(leaf)
    except Exception as error:
        raise Unbatchable(path, f"{type(leaf).__name__}, whose bytes cannot be had ({error})") from error


def _tensor_column(leaf: Any, path: str) -> Column:
    torch = sys.modules["torch"]
    stored, name = stored_as(leaf.dtype)
    if leaf.device.type != "cpu":
        raise Unbatchable(path, f"tensor on {leaf.device}: batches are made in the host's memory")
    if leaf.layout is not torch.strided or leaf.is_quantized or leaf.is_nested:
        raise Unbatchable(path, f"{leaf.layout} tensor of {name or stored}")
    _refuse_many_dimensions(leaf, path)
    if type(leaf) is not torch.Tensor:
        _refuse_without_bytes(leaf, path)
    if not stored:
        raise Unbatchable(path, f"tensor of {name}")
    return Column("array", stored, tuple(leaf.shape), name, leaf.numel() * leaf.element_size())


def _phrase(column: Column, leaf: Any) -> str:
    if column.kind == "objects":
        return f"a {type(leaf).__name__}"
    return f"shape {column.shape} of {column.viewed_as or column.dtype}"
