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
from swift_loader.batch.tree import Mismatch, describe

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Array: TypeAlias = npt.NDArray[Any]
    Write: TypeAlias = Callable[[int, Any], None]

#: torch's dtypes that numpy lacks, and the integers that carry their bits.
_BITS_OF = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}


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
        self._views = column_views(spec, memory)
        self._paths = [end.path for end in spec.structure.ends()]
        self._objects: list[list[Any]] = [[] for _ in spec.columns]
        self._plain_writes = [self._write_for(position) for position in range(len(spec.columns))]
        self._writes = list(self._plain_writes)
        fits = [partial(_fixes, column, path) for column, path in zip(spec.columns, self._paths, strict=True)]
        ways = Ways(self._write_slowly, self._plain_writes, fits)
        self._write_plainly, self.fits = row_functions(spec.structure, self._views, ways)
        """``fits``: whether a sample, as the first of a batch, fixes this very layout."""
        self.write = self._write_plainly
        """Writes one sample to a row; rows come in order. Raises `Misfit` where it does not fit the batch's first.

        To be looked up for each sample: a sample may change how those after it are written.
        """

    def begin(self) -> None:
        """Forgets the batch before."""
        if self._spec is not self._plain_spec:
            self._spec = self._plain_spec
            self._writes = list(self._plain_writes)
            self.write = self._write_plainly
        for values in self._objects:
            values.clear()

    def rows(self, count: int) -> Any:
        """The first ``count`` rows as arrays in the sample's structure, for a dataset that writes them itself."""
        return self._plain_spec.structure.build(view[:count] for view in self._views if view is not None)

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
        column, path = self._plain_spec.columns[position], self._paths[position]
        dtype, shape, ndarray = view.dtype, column.shape, np.ndarray

        def write(row: int, leaf: Any) -> None:
            if type(leaf) is ndarray and leaf.dtype == dtype and leaf.shape == shape:
                view[row] = leaf
                return
            found = _column_of(leaf, path)
            if found == column:
                view[row] = _as_array(leaf)
            elif self._ragged and (found.dtype, found.viewed_as) == (column.dtype, column.viewed_as):
                self._turn_ragged(position, row)
                self._writes[position](row, leaf)
            else:
                raise Misfit(path, row, _phrase(found, leaf), _phrase(column, None))

        return write

    def _number_write(self, position: int, view: Array) -> Write:
        """For a Python int or float. A float among ints makes the batch's column floats, as torch's collate does."""
        general = self._array_write(position, view)
        exact: tuple[type, ...] = (int,) if view.dtype == np.int64 else (float, int)
        path = self._paths[position]

        def write(row: int, leaf: Any) -> None:
            if type(leaf) in exact:
                try:
                    view[row] = leaf
                except OverflowError:
                    raise Misfit(path, row, f"the integer {leaf}", "an integer of 64 bits") from None
            elif type(leaf) is float:
                self._turn_float(position, row)
                self._writes[position](row, leaf)
            else:
                general(row, leaf)

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
        values = self._objects[position]
        values.extend(view[i].copy() for i in range(row))
        listed = Column("objects", column.dtype, (), column.viewed_as)
        self._spec = self._spec.with_column(position, listed)
        path = self._paths[position]

        def write(row: int, leaf: Any) -> None:
            found = _column_of(leaf, path)
            if (found.kind, found.dtype, found.viewed_as) != ("array", column.dtype, column.viewed_as):
                raise Misfit(path, row, _phrase(found, leaf), f"dtype {column.viewed_as or column.dtype}")
            values.append(np.array(_as_array(leaf), dtype=column.dtype))

        self._writes[position] = write
        self.write = self._write_slowly


def _object_write(append: Callable[[Any], None], path: str) -> Write:
    def write(row: int, leaf: Any) -> None:
        if (column := _column_of(leaf, path)).kind != "objects":
            raise Misfit(path, row, _phrase(column, leaf), "str, bytes or None")
        # An array's memory may be the dataset's own, filled anew for the next sample.
        append(leaf.copy() if isinstance(leaf, np.ndarray) else leaf)

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
    if isinstance(leaf, bool | int | float | complex):
        return _numpy_column(np.asarray(leaf), path)
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
    return Column("array", dtype.name, leaf.shape, row_nbytes=leaf.nbytes)


def _tensor_column(leaf: Any, path: str) -> Column:
    name = str(leaf.dtype).removeprefix("torch.")
    if leaf.device.type != "cpu":
        raise Unbatchable(path, f"tensor on {leaf.device}: batches are made in the host's memory")
    if str(leaf.layout) != "torch.strided" or leaf.is_quantized or leaf.is_nested:
        raise Unbatchable(path, f"{leaf.layout} tensor of {name}")
    shape = tuple(leaf.shape)
    nbytes = leaf.numel() * leaf.element_size()
    if bits := _BITS_OF.get(name):
        return Column("array", bits, shape, name, nbytes)
    try:
        return Column("array", np.dtype(name).name, shape, row_nbytes=nbytes)
    except TypeError:
        raise Unbatchable(path, f"tensor of {name}") from None


def _as_array(leaf: Any) -> Any:
    """A numpy view of a leaf that `_column_of` took."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(leaf, torch.Tensor):
        return leaf
    plain = leaf.detach().resolve_conj().resolve_neg()
    bits = _BITS_OF.get(str(plain.dtype).removeprefix("torch."))
    return (plain if bits is None else plain.view(getattr(torch, bits))).numpy()


def _phrase(column: Column, leaf: Any) -> str:
    if column.kind == "objects":
        return f"a {type(leaf).__name__}"
    return f"shape {column.shape} of {column.viewed_as or column.dtype}"
