"""Writes, as Python source, the functions that take one sample apart and write its leaves to a row.

Done by walking the structure, a row of two leaves costs 0.9 us, most of it calls; written out for the structure it
costs 0.4 us, and another 0.2 us less where fetching is in the same loop. With small samples that decides how many
batches a worker makes. The source holds no value of the user's: types, keys, dtypes and arrays are passed in as
variables with names of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from swift_loader.batch.tree import OF_A_TYPE, Branch, Leaf, Node

if TYPE_CHECKING:
    Write: TypeAlias = Callable[[int, Any], None]
    Fits: TypeAlias = Callable[[Any], bool]
    Fill: TypeAlias = Callable[[Any, list[int], "Watch"], int]

#: Stands in the lines for what is done with a sample of another structure.
_OTHER = "OTHER"

#: Later than any clock, in nanoseconds or seconds.
NEVER = 1 << 62

_FILL = """
def fill(dataset, indices, watch):
    word, seq, cell, place = watch.word, watch.seq, watch.cell, watch.place
    passes = watch.passes
    # Numbers with a point: they cost half of what integers as large do. Past ``limit`` there is something to see: a
    # sample slower than all before it, or, while something is due, each one.
    due, slowest, least = NEVER if watch.due_ns == NEVER else watch.due_ns / 1e9, 0.0, 0.0
    row, start, stop = -1, watch.rows.start, watch.rows.stop
    for first, past, measures in ((0, start, False), (start, stop, True), (stop, len(indices), False)):
        if first >= past:
            continue
        looks = measures or due != NEVER
        begun = now = clock() if looks else NEVER
        limit = now + least
        for row, index in enumerate(indices[first:past], first):
            if word[0] != seq:
                raise watch.failed(None, index)
            cell[place] = index
            try:
                sample = dataset[index]
            except passes:
                raise
            except BaseException as error:
                raise watch.failed(error, index) from error
            if looks:
                now = clock()
                if now > limit:
                    if now - limit + least > slowest:
                        slowest, watch.slowest_index = now - limit + least, index
                    if now > due:
                        due = NEVER
                        looks = measures
                        watch.when_due()
                    least = slowest if due == NEVER else 0.0
                limit = now + least
            BODY
        else:
            if measures:
                watch.rows_ns = int((now - begun) * 1e9)
            continue
        break
    else:
        row += 1
        sample = None
    watch.slowest_ns, watch.odd = int(slowest * 1e9), sample
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
    due_ns: int
    when_due: Callable[[], None]
    """Called once the clock is past ``due_ns``."""
    failed: Callable[[BaseException | None, int], Exception]
    """What to raise where a sample cannot be had; given None, where the batch is not wanted."""
    rows: range
    """Among these the slowest sample is looked for. At others the clock is looked at only while something is due."""
    passes: tuple[type[BaseException], ...] = ()
    """What is not the dataset's to raise: it goes on as it is."""
    rows_ns: int = 0
    """What these rows took."""
    slowest_ns: int = 0
    slowest_index: int = -1
    odd: Any = None
    """A sample that was fetched and could not be stored as it is."""


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


def row_functions(structure: Node, views: list[Any], ways: Ways) -> RowFunctions:
    """Writes the functions.

    Args:
        structure: What samples look like.
        views: The columns' arrays, None where a leaf cannot be stored in one as it is.
        ways: What is called where a leaf cannot be stored as it is.
    """
    source = _Source(views, ways)
    source.take_apart(structure, "sample")
    return source.compiled()


@dataclass(frozen=True, slots=True)
class Ways:
    """The slow ways."""

    write_sample: Write
    """Takes a sample of another structure."""
    write_leaf: list[Write]
    """For each column."""
    leaf_fits: Sequence[Fits]
    """For each column."""


class _Source:
    """The lines of the function, and what its names stand for."""

    def __init__(self, views: list[Any], ways: Ways) -> None:
        self._views = views
        self._names: dict[str, Any] = {
            "ndarray": np.ndarray, "write_sample": ways.write_sample, "clock": perf_counter, "NEVER": NEVER,
        }  # fmt: skip
        for position, view in enumerate(views):
            self._names[f"write{position}"] = ways.write_leaf[position]
            self._names[f"fits{position}"] = ways.leaf_fits[position]
            if view is not None:
                self._names[f"view{position}"] = view
                self._names[f"dtype{position}"] = view.dtype
                self._names[f"shape{position}"] = view.shape[1:]
        self._lines: list[str] = []
        self._stores: list[str] = []
        self._tests: list[str] = []
        self._of_first: list[str] = []
        """What else must hold for a batch's first sample, which fixes the order of keys."""
        self._plain_stores: list[tuple[str, str]] = []
        """For each column: whether a leaf can be stored as it is, and how."""
        self._count = 0

    def take_apart(self, node: Node, value: str) -> None:
        """Adds the lines that get all leaves below ``node`` out of the variable ``value``."""
        if isinstance(node, Leaf):
            self._store(value)
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

    def compiled(self) -> RowFunctions:
        """The functions. A sample is taken apart whole before anything of it is written."""
        apart = "\n    ".join(self._lines)
        writing = apart.replace(_OTHER, "write_sample(row, sample)") + "\n    " + "\n    ".join(self._stores)
        testing = apart.replace(_OTHER, "False")
        source = (
            f"def write_row(row, sample):\n    {writing}\n"
            f"def fits(sample):\n    {testing}\n    return {' and '.join([*self._of_first, *self._tests]) or True}\n"
        )
        if all(store for _, store in self._plain_stores):
            source += self._fill()
        exec(source, self._names)  # noqa: S102 - only names of ours, see above
        return RowFunctions(self._names["write_row"], self._names["fits"], self._names.get("fill"))

    def _fill(self) -> str:
        storable = " and ".join(test for test, _ in self._plain_stores)
        lines = [*self._lines, f"if not ({storable}): return OTHER", *(store for _, store in self._plain_stores)]
        if self._of_first:
            lines.insert(len(self._lines), f"if not row and not ({' and '.join(self._of_first)}): return OTHER")
        body = "\n            ".join(lines).replace("return " + _OTHER, "break")
        return _FILL.replace("BODY", body)

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

    def _store(self, value: str) -> None:
        position = len(self._tests)
        view = self._views[position]
        if view is None:
            self._plain_stores.append(("False", ""))
            self._stores.append(f"write{position}(row, {value})")
            self._tests.append(f"fits{position}({value})")
            return
        as_it_is = self._storable(value, position, view)
        self._plain_stores.append((as_it_is, f"view{position}[row] = {value}"))
        self._stores.append(f"if {as_it_is}: view{position}[row] = {value}")
        self._stores.append(f"else: write{position}(row, {value})")
        self._tests.append(f"({as_it_is} or fits{position}({value}))")

    @staticmethod
    def _storable(value: str, position: int, view: Any) -> str:
        number = {"int64": "int", "float64": "float", "bool": "bool"}.get(view.dtype.name) if view.ndim == 1 else None
        if number is None:
            return f"type({value}) is ndarray and {value}.dtype == dtype{position} and {value}.shape == shape{position}"
        # An int may be too large for the column: its own writer says so.
        return f"type({value}) is {number}" + (f" and -{1 << 63} <= {value} < {1 << 63}" if number == "int" else "")

    def _name(self, kind: str, value: Any) -> str:
        self._count += 1
        name = f"{kind}_{self._count}"
        self._names[name] = value
        return name
