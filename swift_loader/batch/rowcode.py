"""Writes, as Python source, the functions that take one sample apart and write its leaves to a row.

Done by walking the structure, a row of two leaves costs 0.9 us, most of it calls; written out for the structure it
costs 0.4 us, and another 0.2 us less where fetching is in the same loop. With small samples that decides how many
batches a worker makes. The source holds no value of the user's: types, keys, dtypes and arrays are passed in as
variables with names of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from textwrap import indent
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from swift_loader.batch.layout import Column
from swift_loader.batch.tensors import as_array, dtype_of, mover
from swift_loader.batch.tree import OF_A_TYPE, Branch, Leaf, Node

if TYPE_CHECKING:
    Write: TypeAlias = Callable[[int, Any], None]
    Fits: TypeAlias = Callable[[Any], bool]
    Fill: TypeAlias = Callable[[Any, list[int], "Watch"], int]

#: Stands in the lines for what is done with a sample of another structure.
_OTHER = "OTHER"

#: What there is of each column for the place in memory: its array, its address, and the slow ways.
_GIVEN = ("view", "at", "write", "fits")

#: The numbers of Python's own that columns of these dtypes hold.
NUMBERS: dict[str, type] = {"int64": int, "float64": float, "bool": bool}

_FILL = """
def fill(dataset, indices, watch):
    word, seq, cell, place = watch.word, watch.seq, watch.cell, watch.place
    passes, looks = watch.passes, watch.looks
    fetching = slowest = 0.0  # in seconds: such numbers cost half of what integers as large do
    row = -1
    for row, index in enumerate(indices):
        if word[0] != seq:
            raise watch.failed(None, index)
        cell[place] = index
        if looks:
            begun = clock()
        try:
            sample = dataset[index]
        except passes:
            raise
        except BaseException as error:
            raise watch.failed(error, index) from error
        if looks:
            took = clock() - begun
            fetching += took
            if took > slowest:
                slowest, watch.slowest_index = took, index
        BODY
    else:
        row += 1
    watch.fetch_ns, watch.slowest_ns = int(fetching * 1e9), int(slowest * 1e9)
    if row < len(indices): watch.odd = (sample,)
    return row
"""


@dataclass(slots=True)
class Watch:
    """What `fill` looks at between two samples, and what it has found."""

    word: Any
    seq: int
    """The batch is wanted while ``word[0]`` is this number."""
    cell: Any
    place: int
    """``cell[place]`` tells whoever looks which sample is at."""
    failed: Callable[[BaseException | None, int], Exception]
    """What to raise where a sample cannot be had; given None, where the batch is not wanted."""
    looks: bool
    """Whether each sample is timed."""
    passes: tuple[type[BaseException], ...] = ()
    """What is not the dataset's to raise: it goes on as it is."""
    fetch_ns: int = 0
    slowest_ns: int = 0
    slowest_index: int = -1
    odd: Sequence[Any] = ()
    """Samples that were fetched and could not be stored as they are."""
    gather: Callable[[list[Any]], bool] | None = None
    """For `fill_together`: stores all samples at once; False where they cannot be."""


@dataclass(frozen=True, slots=True)
class RowFunctions:
    """What was written for one structure."""

    write: Write
    """``write(row, sample)``."""
    fits: Fits
    """``fits(sample)``: whether the sample fixes this very layout."""
    fill: Fill | None
    """``fill(dataset, indices, watch)`` fetches samples and writes them to their rows, for as long as each fixes this
    very layout and can be stored as it is; gives back how many. None where some leaf cannot be."""


@dataclass(frozen=True, slots=True)
class Ways:
    """The slow ways."""

    write_sample: Write
    """Takes a sample of another structure."""
    write_leaf: list[Write]
    """For each column."""
    leaf_fits: Sequence[Fits]
    """For each column."""


def row_functions(structure: Node, columns: tuple[Column, ...], views: list[Any], ways: Ways) -> RowFunctions:
    """The functions for one place in memory.

    Args:
        structure: What samples look like.
        columns: What their leaves are stored as.
        views: The columns' arrays, None where one is of objects.
        ways: What is called where a leaf cannot be stored as it is.
    """
    maker = _maker(structure, columns, with_tensors=hasattr(sys.modules.get("torch"), "Tensor"))
    places = [None if view is None else view.__array_interface__["data"][0] for view in views]
    return RowFunctions(*maker(ways.write_sample, *views, *places, *ways.write_leaf, *ways.leaf_fits))


@lru_cache(maxsize=64)
def _maker(structure: Node, columns: tuple[Column, ...], *, with_tensors: bool) -> Callable[..., Any]:
    """What makes the functions of a structure for any memory.

    Compiled once: that takes 0.3 ms, and without workers each large batch has memory of its own. What depends on that
    are arguments, not globals: the interpreter remembers where globals lie, for one dict of them at a time.
    """
    source = _Source(columns, with_tensors=with_tensors)
    source.take_apart(structure, "sample")
    return source.compiled()


@dataclass(slots=True)
class _Plain:
    """How one leaf is stored as it is: sources of a condition, and of what is done then."""

    array: str = "False"
    """Whether ``array[row] = leaf`` will do."""
    array_store: str = ""
    tensor: str = "False"
    """Whether it is a tensor with the right bytes. Asking one that has none raises RuntimeError."""
    tensor_store: list[str] = field(default_factory=list)

    @property
    def test(self) -> str:
        """Whether it can be stored as it is."""
        return f"({self.array} or {self.tensor})" if self.tensor_store else self.array

    def stores(self, value: str) -> list[str]:
        """The lines that do it."""
        if not self.tensor_store:
            return [self.array_store]
        return [
            f"if type({value}) is Tensor:",
            *("    " + line for line in self.tensor_store),
            f"else: {self.array_store or 'pass'}",
        ]

    def written(self, value: str, otherwise: str) -> list[str]:
        """The lines that do it where it can be done."""
        asks = [f"plain = {self.test}"]
        if self.tensor_store:
            asks = ["try:", "    " + asks[0], "except RuntimeError: plain = False"]
        return [*asks, "if plain:", *("    " + line for line in self.stores(value)), f"else: {otherwise}"]


class _Source:
    """The lines of the function, and what its names stand for."""

    def __init__(self, columns: tuple[Column, ...], *, with_tensors: bool) -> None:
        self._columns = columns
        self._names: dict[str, Any] = {"ndarray": np.ndarray, "clock": perf_counter}
        if with_tensors:
            self._names.update(Tensor=sys.modules["torch"].Tensor, as_array=as_array)
        self._with_tensors = with_tensors
        self._lines: list[str] = []
        self._of_first: list[str] = []
        """What else must hold for a batch's first sample, which fixes the order of keys."""
        self._leaves: list[tuple[str, _Plain]] = []
        """For each column: the leaf's variable, and how it is stored."""
        self._count = 0

    def take_apart(self, node: Node, value: str) -> None:
        """Adds the lines that get all leaves below ``node`` out of the variable ``value``."""
        if isinstance(node, Leaf):
            position = len(self._leaves)
            self._leaves.append((value, self._plain(value, position, self._columns[position])))
            return
        is_plain = node.kind not in OF_A_TYPE
        if not is_plain or (node.kind == "dict" and len(node.keys) > 1):
            self._of_first.append(f"{self._name('is_made_by', node.is_made_by)}({value})")
        if not is_plain:
            self._have_taken_apart(node, value)
            return
        kind = self._name("type", node.type)
        sized = "" if node.kind == "dataclass" else f" or len({value}) != {len(node.keys)}"
        self._lines.append(f"if type({value}) is not {kind}{sized}: return OTHER")
        if node.kind == "dict" and node.type is not dict:  # a defaultdict would make up what is missing
            keys = self._name("keys", node.keys)
            self._lines.append(f"if not all(map({value}.__contains__, {keys})): return OTHER")
        parts = [self._name("part", None) for _ in node.keys]
        self._lines += self._unpacking(node, value, parts)
        for child, part in zip(node.children, parts, strict=True):
            self.take_apart(child, part)

    def _have_taken_apart(self, node: Branch, value: str) -> None:
        found, take = self._name("found", None), self._name("take", node.parts_if_same)
        self._lines += [f"{found} = {take}({value})", f"if {found} is None: return OTHER"]
        parts = [self._name("part", None) for _ in node.children]
        if parts:
            self._lines.append(f"{', '.join(parts)}, = {found}")
        for child, part in zip(node.children, parts, strict=True):
            self.take_apart(child, part)

    def compiled(self) -> Callable[..., Any]:
        """What makes the functions. A sample is taken apart whole before anything of it is written."""
        can_fill = all(plain.test != "False" for _, plain in self._leaves)
        functions = self._write_row() + self._fits() + (self._fill() if can_fill else "fill = None\n")
        given = ["write_sample", *(f"{name}{at}" for name in _GIVEN for at in range(len(self._leaves)))]
        source = f"def maker({', '.join(given)}):\n{indent(functions, '    ')}\n    return write_row, fits, fill\n"
        exec(source, self._names)  # noqa: S102 - only names of ours, see above
        return self._names["maker"]  # type: ignore[no-any-return] # just made

    def _write_row(self) -> str:
        lines = [line.replace(_OTHER, "write_sample(row, sample)") for line in self._lines]
        for position, (value, plain) in enumerate(self._leaves):
            slowly = f"write{position}(row, {value})"
            lines += [slowly] if plain.test == "False" else plain.written(value, otherwise=slowly)
        return _indented("def write_row(row, sample):", lines or ["pass"])

    def _fits(self) -> str:
        lines = [line.replace(_OTHER, "False") for line in self._lines]
        tests = [f"({plain.array} or fits{at}({value}))" for at, (value, plain) in enumerate(self._leaves)]
        return _indented("def fits(sample):", [*lines, f"return {' and '.join([*self._of_first, *tests]) or True}"])

    def _fill(self) -> str:
        """Nothing of a sample is written before all of it can be stored as it is."""
        lines = [line.replace("return " + _OTHER, "break") for line in self._lines]
        if self._of_first:
            lines.append(f"if not row and not ({' and '.join(self._of_first)}): break")
        tests = " and ".join(plain.test for _, plain in self._leaves)
        if any(plain.tensor_store for _, plain in self._leaves):
            lines += ["try:", f"    if not ({tests}): break", "except RuntimeError: break"]
        elif tests:
            lines.append(f"if not ({tests}): break")
        for value, plain in self._leaves:
            lines += plain.stores(value)
        return _FILL.replace("BODY", "\n        ".join(lines or ["pass"]))

    def _unpacking(self, node: Branch, value: str, parts: list[str]) -> list[str]:
        if node.kind in ("tuple", "list"):
            return [f"{', '.join(parts)}, = {value}"] if parts else []
        if node.kind == "dataclass":
            names = [self._name("key", key) for key in node.keys]
            return [f"{part} = getattr({value}, {name})" for part, name in zip(parts, names, strict=True)]
        names = [self._name("key", key) for key in node.keys]
        # Looked for first: a defaultdict would make up what is missing.
        missing = " or ".join(f"{name} not in {value}" for name in names)
        gets = [f"{part} = {value}[{name}]" for part, name in zip(parts, names, strict=True)]
        return [f"if {missing}: return OTHER", *gets] if parts else []

    def _plain(self, value: str, position: int, column: Column) -> _Plain:
        plain = _Plain()
        if column.kind != "array":
            return plain
        self._names[f"shape{position}"] = column.shape
        if not column.viewed_as:  # the bits of what numpy lacks come from such tensors: integers like them do not fit
            dtype = self._names[f"dtype{position}"] = np.dtype(column.dtype)
            self._names[f"scalar{position}"] = dtype.type
            plain.array = self._is_array(value, position, column)
            plain.array_store = f"view{position}[row] = {value}"
        if self._with_tensors:
            self._add_tensor(plain, value, position, column)
        return plain

    @staticmethod
    def _is_array(value: str, position: int, column: Column) -> str:
        array = f"type({value}) is ndarray and {value}.dtype == dtype{position} and {value}.shape == shape{position}"
        if column.shape:
            return array
        number = NUMBERS[column.dtype].__name__ if column.dtype in NUMBERS else None
        if number is None:
            return f"(type({value}) is scalar{position} or {array})"
        # An int may be too large for the column: its own writer says so.
        small = f" and -{1 << 63} <= {value} < {1 << 63}" if number == "int" else ""
        return f"(type({value}) is {number}{small} or type({value}) is scalar{position})"

    def _add_tensor(self, plain: _Plain, value: str, position: int, column: Column) -> None:
        """Copied at once, never gathered: the dataset may fill the same memory anew for its next sample.

        Whatever has an address and is on the CPU has strides: neither sparse nor nested ones get so far.
        """
        dtype = dtype_of(column.dtype, column.viewed_as)
        if dtype is None or not column.row_nbytes:
            return
        self._names[f"kind{position}"] = dtype
        self._names[f"move{position}"] = mover(column.row_nbytes)
        view, at = f"view{position}", f"at{position} + row * {column.row_nbytes}"
        plain.tensor = (
            f"type({value}) is Tensor and {value}.dtype is kind{position} and {value}.shape == shape{position} "
            f"and {value}.is_cpu and (from{position} := {value}.data_ptr())"
        )
        if not column.shape and column.dtype in ("int64", "float64", "bool"):
            plain.tensor_store = [f"{view}[row] = {value}.item()"]
            return
        conj = f" or {value}.is_conj()" if dtype.is_complex else ""
        plain.tensor_store = [
            f"if not {value}.is_contiguous() or {value}.is_neg(){conj}: {view}[row] = as_array({value})",
            f"else: move{position}({at}, from{position}, {column.row_nbytes})",
        ]

    def _name(self, kind: str, value: Any) -> str:
        self._count += 1
        name = f"{kind}_{self._count}"
        self._names[name] = value
        return name


def _indented(head: str, lines: list[str]) -> str:
    return "\n    ".join([head, *lines]) + "\n"


def fill_together(dataset: Any, indices: Sequence[int], watch: Watch) -> int:
    """``fill`` for samples of any structure, which are stored when all of them are there, by ``watch.gather``.

    Nothing is done between two samples, so the clock is read once for each: a sample's time ends as the next begins.
    """
    samples: list[Any] = []
    keep = samples.append
    word, seq, cell, place = watch.word, watch.seq, watch.cell, watch.place
    passes, looks = watch.passes, watch.looks
    slowest = 0.0
    began = before = perf_counter()
    for index in indices:
        if word[0] != seq:
            raise watch.failed(None, index)
        cell[place] = index
        try:
            keep(dataset[index])
        except passes:
            raise
        except BaseException as error:
            raise watch.failed(error, index) from error
        if looks:
            now = perf_counter()
            if now - before > slowest:
                slowest, watch.slowest_index = now - before, index
            before = now
    watch.fetch_ns, watch.slowest_ns = int((before - began) * 1e9), int(slowest * 1e9)
    assert watch.gather is not None
    if watch.gather(samples):
        return len(samples)
    watch.odd = samples
    return 0
