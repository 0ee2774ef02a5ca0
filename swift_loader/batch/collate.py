"""The default collate: samples go straight to their rows in a slot, each byte written once.

The first sample of a batch fixes the layout; every later leaf is checked against it and written to its place, so a
batch is a function of its own samples, whichever worker makes it. Knows numpy and, if the dataset brought it, torch;
knows nothing of slots beyond an array of bytes, nor of workers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from swift_loader.batch.containers import attributes_of
from swift_loader.batch.gathercode import gather_for
from swift_loader.batch.layout import BatchSpec, Column, lay_out
from swift_loader.batch.misfit import Misfit, Rounded, Unbatchable, difference, phrase, too_large
from swift_loader.batch.promote import Inexact, cast, promoted
from swift_loader.batch.rowcode import Ways, row_functions
from swift_loader.batch.spare import Spare
from swift_loader.batch.tensors import BITS_OF, as_array, stored_as
from swift_loader.batch.tree import Beyond, Leaf, Mismatch, describe

if TYPE_CHECKING:
    import numpy.typing as npt

    from swift_loader.batch.gathercode import Gather

    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Array: TypeAlias = npt.NDArray[Any]
    Write: TypeAlias = Callable[[int, Any], None]


def spec_of(sample: Any, capacity: int) -> BatchSpec:
    """The layout that ``sample`` fixes for a batch of ``capacity`` rows."""
    try:
        structure = describe(sample, attributes=True)
    except RecursionError:
        raise Unbatchable("sample", f"{type(sample).__name__} that holds itself, or is nested too deeply") from None
    ends = zip(structure.ends(), structure.leaves(sample), strict=True)
    columns = (_OBJECTS if type(end) is Beyond else _column_of(leaf, end.path) for end, leaf in ends)
    return lay_out(structure, tuple(columns), capacity)


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
        self._memory = memory
        self._plain_views = column_views(spec, memory)
        self._views = list(self._plain_views)
        self._apart: dict[int, Array] = {}
        """Columns that have turned into another dtype, in memory of their own."""
        self._ends = tuple(spec.structure.ends())
        self._paths = [end.path for end in self._ends]
        self._objects: list[list[Any]] = [[] for _ in spec.columns]
        self._plain_writes = [self._write_for(position) for position in range(len(spec.columns))]
        self._writes = list(self._plain_writes)
        fits = [partial(_fixes, column, end) for column, end in zip(spec.columns, self._ends, strict=True)]
        ways = Ways(self._write_slowly, self._plain_writes, fits)
        functions = row_functions(spec.structure, spec.columns, self._plain_views, ways)
        self._write_plainly, self.fits, self.fill = functions.write, functions.fits, functions.fill
        """``fits``: whether a sample, as the first of a batch, fixes this very layout. For ``fill`` see there."""
        self.write = self._write_plainly
        """Writes one sample to a row; rows come in order. Raises `Misfit` where it does not fit the batch's first.

        To be looked up for each sample: a sample may change how those after it are written.
        """

    @cached_property
    def gather(self) -> Gather | None:
        """Stores all samples of a batch at once, if they can be; see `gather_for`."""
        return gather_for(self._plain_spec, self._plain_views)

    def begin(self, spare: Spare | None = None) -> None:
        """Forgets the batch before. Arrays in ``spare`` are nobody else's, and lie where they may stay."""
        self._spare = spare
        if self._spec is not self._plain_spec:
            self._spec = self._plain_spec
            self._views, self._apart = list(self._plain_views), {}
            self._writes = list(self._plain_writes)
            self.write = self._write_plainly
        for values in self._objects:
            values.clear()

    def leaves(self, count: int) -> list[Any]:
        """The columns' first ``count`` rows."""
        return [view[:count] for view in self._plain_views if view is not None]

    def rows(self, count: int) -> Any:
        """The first ``count`` rows as arrays in the sample's structure, for a dataset that writes them itself."""
        return self._plain_spec.structure.build(iter(self.leaves(count)))

    def finish(self) -> tuple[BatchSpec, list[list[Any]]]:
        """The layout as this batch left it, and its columns of objects."""
        if self._apart:
            self._settle()
        columns = zip(self._spec.columns, self._objects, strict=True)
        return self._spec, [values for column, values in columns if column.kind == "objects"]

    @property
    def is_apart(self) -> bool:
        """Whether some of a finished batch has its place behind what was there, which `lay` puts it to."""
        return bool(self._apart)

    def lay(self, memory: Bytes) -> None:
        """Puts what is apart into the slot, which has room for the layout that `finish` gave."""
        for position, array in self._apart.items():
            np.ndarray(array.shape, array.dtype, memory, self._spec.offsets[position])[...] = array

    def _settle(self) -> None:
        """Columns of another dtype go where they were, or behind all others if they have become wider."""
        columns = zip(self._plain_spec.columns, self._spec.columns, strict=True)
        wider = [at for at, (plain, turned) in enumerate(columns) if turned.row_nbytes > plain.row_nbytes]
        turned, self._apart = self._apart, {at: self._apart[at] for at in wider}
        for position in turned.keys() - self._apart.keys():
            array = turned[position]
            np.ndarray(array.shape, array.dtype, self._memory, self._spec.offsets[position])[...] = array
        self._spec = self._spec.with_room(wider, self.end)

    @property
    def end(self) -> int:
        """The bytes from here on are not written to before `lay`."""
        return self._plain_spec.nbytes if self._spare is None else self._spare.end

    def _write_slowly(self, row: int, sample: Any) -> None:
        try:
            for write, leaf in zip(self._writes, self._plain_spec.structure.leaves(sample), strict=True):
                write(row, leaf)
        except Mismatch as error:
            raise Misfit(error.path, row, error.found, error.expected, error.differs_in) from None

    def _write_for(self, position: int) -> Write:
        column, view, path = self._spec.columns[position], self._views[position], self._paths[position]
        if type(self._ends[position]) is Beyond:
            return _attributes_write(self._objects[position])
        if view is None:
            return _object_write(self._objects[position], path)
        if column.shape == () and column.dtype in ("int64", "float64") and not column.viewed_as:
            return self._number_write(position, view)
        return self._array_write(position, view)

    def _array_write(self, position: int, view: Array) -> Write:
        column, path = self._spec.columns[position], self._paths[position]
        dtype, shape, expected = view.dtype, column.shape, phrase(column, None)
        ndarray = None if column.viewed_as else np.ndarray

        def write(row: int, leaf: Any) -> None:
            if type(leaf) is ndarray and leaf.dtype == dtype and leaf.shape == shape:
                view[row] = leaf
                return
            found = _column_in_row(leaf, path, row, expected)
            if found == column:
                view[row] = as_array(leaf)
            elif self._ragged and found.kind == "array" and found.shape != shape and found.name == column.name:
                self._turn_ragged(position, row)
                self._writes[position](row, leaf)
            elif found.kind == "array" and found.shape == shape and (name := promoted(column.name, found.name)):
                self._write_promoted(position, row, leaf, found, _column_named(name, shape))
            else:
                raise Misfit(path, row, phrase(found, leaf), expected, difference(found, column))

        return write

    def _number_write(self, position: int, view: Array) -> Write:
        """For a Python int or float."""
        general = self._array_write(position, view)
        exact = int if view.dtype == np.int64 else float
        path = self._paths[position]

        def write(row: int, leaf: Any) -> None:
            try:
                if type(leaf) is exact or (type(leaf) is int and -_MOST_IN_FLOAT <= leaf <= _MOST_IN_FLOAT):
                    view[row] = leaf
                else:
                    general(row, leaf)
            except OverflowError:
                raise too_large(leaf, path, row) from None

        return write

    def _write_promoted(self, position: int, row: int, leaf: Any, found: Column, wanted: Column) -> None:
        """Writes a leaf of another dtype. The batch's column turns into one that holds both, if it is none yet."""
        column, path = self._spec.columns[position], self._paths[position]
        try:
            value = np.asarray(as_array(leaf), found.dtype)
        except OverflowError:
            raise too_large(leaf, path, row) from None
        if wanted != column:
            written = self._view(position)[:row]
            turned = np.empty((self._spec.capacity, *wanted.shape), wanted.dtype)
            turned[:row] = _cast(written, column, wanted, (path, 0))
            self._views[position] = self._apart[position] = turned
            self._spec = self._spec.with_column(position, wanted)
            self._writes[position] = self._write_for(position)
            self.write = self._write_slowly
        self._view(position)[row] = _cast(value[None], found, wanted, (path, row))[0]

    def _turn_ragged(self, position: int, row: int) -> None:
        column, values = self._spec.columns[position], self._objects[position]
        values.extend(np.array(value) for value in self._view(position)[:row])
        self._apart.pop(position, None)
        listed = Column("objects", column.dtype, (), column.viewed_as)
        self._spec = self._spec.with_column(position, listed)
        path, expected = self._paths[position], f"dtype {column.name}"
        ndarray, dtype = None if column.viewed_as else np.ndarray, np.dtype(column.dtype)

        def write(row: int, leaf: Any) -> None:
            if type(leaf) is ndarray and leaf.dtype == dtype and leaf.ndim < _MAX_DIMENSIONS:
                values.append(self._own(leaf))
                return
            found = _column_in_row(leaf, path, row, expected)
            if (found.kind, found.name) != ("array", column.name):
                raise Misfit(path, row, phrase(found, leaf), expected, difference(found, column))
            values.append(self._own(np.asarray(as_array(leaf), column.dtype)))

        self._writes[position] = write
        self.write = self._write_slowly

    def _view(self, position: int) -> Array:
        view = self._views[position]
        assert view is not None
        return view

    def _own(self, array: Array) -> Array:
        """The array, or a copy of it where its memory may be the dataset's own, filled anew for the next sample."""
        return array.copy() if self._spare is None or self._spare.place_of(array) is None else array


def _attributes_write(values: list[Any]) -> Write:
    def write(row: int, container: Any) -> None:
        if not row:  # the first sample's are the batch's
            values.append(attributes_of(container))

    return write


def _object_write(values: list[Any], path: str) -> Write:
    def write(row: int, leaf: Any) -> None:
        try:
            column = _column_of(leaf, path)
        except Unbatchable as error:
            raise Misfit(path, row, f"a {error.found}", phrase(_OBJECTS, values[0])) from None
        if column.kind != "objects":
            raise Misfit(path, row, phrase(column, leaf), phrase(_OBJECTS, values[0]))
        # An array's memory, or a record's, may be the dataset's own, filled anew for the next sample.
        values.append(leaf.copy() if isinstance(leaf, np.ndarray | np.void) else leaf)

    return write


def _fixes(column: Column, end: Leaf, leaf: Any) -> bool:
    try:
        return type(end) is Beyond or _column_of(leaf, end.path) == column
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
#: Up to this integer a float of 64 bits holds each.
_MOST_IN_FLOAT = 1 << 53
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
    if kind.__module__.startswith("PIL."):
        raise Unbatchable(path, f"PIL {kind.__name__}", "np.asarray(image) in the dataset makes an array of it")
    raise Unbatchable(path, kind.__name__)


def _numpy_column(leaf: Any, path: str) -> Column:
    if is_masked(leaf):
        raise Unbatchable(path, "MaskedArray, whose mask would be lost", "Give its data and its mask as two leaves")
    dtype = leaf.dtype
    if dtype.kind not in "biufc" or dtype.char in "gG":  # torch has no place for text, dates, records, long doubles
        return _OBJECTS
    _refuse_many_dimensions(leaf, path)
    return Column("array", dtype.name, leaf.shape, row_nbytes=leaf.nbytes)


def is_masked(array: Any) -> bool:
    """Whether an array has a mask: numpy's module for these, 3 MB in each worker, is not loaded to ask it."""
    masks: Any = sys.modules.get("numpy.ma")
    return masks is not None and isinstance(array, masks.MaskedArray)


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
        remedy = "dequantize()" if leaf.is_quantized else "to_dense()" if not leaf.is_nested else "unbind()"
        found = f"{leaf.layout} tensor of {name or stored}"
        raise Unbatchable(path, found, f"Convert it in the dataset (its {remedy})")
    _refuse_many_dimensions(leaf, path)
    if type(leaf) is not torch.Tensor:
        _refuse_without_bytes(leaf, path)
    if not stored:
        raise Unbatchable(path, f"tensor of {name}")
    return Column("array", stored, tuple(leaf.shape), name, leaf.numel() * leaf.element_size())


def _column_named(name: str, shape: tuple[int, ...]) -> Column:
    """The column of numbers of torch's dtype ``name``."""
    bits = BITS_OF.get(name)
    dtype = np.dtype(bits or name)
    return Column("array", dtype.name, shape, name if bits else "", dtype.itemsize * prod(shape))


def _cast(array: Array, column: Column, wanted: Column, place: tuple[str, int]) -> Any:
    """See `cast`. ``place``: the path, and the row that the first one is."""
    try:
        return cast(array, column.name, wanted.name)
    except Inexact as error:
        raise Rounded(place[0], place[1] + error.row, error.value, error.dtype) from None
