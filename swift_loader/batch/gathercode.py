"""Writes, as Python source, the function that stores a whole batch of samples leaf by leaf: all its rows at once.

What is asked of each sample when it is stored alone (its types, its dtype) is asked here of all of them together, in
loops of the interpreter's own: 32 rows of a small tensor and a number cost 11 us, where one by one they cost 30. Only
for samples that all are what the layout says, and of which none has changed since it was given: whoever calls knows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from swift_loader.batch.layout import Column
from swift_loader.batch.rowcode import NUMBERS
from swift_loader.batch.tensors import dtype_of
from swift_loader.batch.tree import OF_A_TYPE, Leaf, Node

if TYPE_CHECKING:
    from swift_loader.batch.layout import BatchSpec

    Gather: TypeAlias = Callable[[Sequence[Any]], bool]

#: Samples that are larger than this together are copied as they come: what would be saved is little, and a whole batch
#: of them would have to be held.
_MOST_NBYTES = 16 * 1024


def gather_for(spec: BatchSpec, views: Sequence[Any]) -> Gather | None:
    """``gather(samples)`` stores them from the first row on; False where some cannot be: then the rows may be anything.

    None where no samples of this layout can be.
    """
    if any(column.kind != "array" for column in spec.columns) or not spec.columns:
        return None
    if sum(column.row_nbytes for column in spec.columns) > _MOST_NBYTES or not hasattr(_torch(), "Tensor"):
        return None
    maker = _maker(spec.structure, spec.columns)
    if maker is None:
        return None
    rows = [
        _torch().from_numpy(view).view(dtype_of(column.dtype, column.viewed_as))
        for view, column in zip(views, spec.columns, strict=True)
    ]
    return maker(*views, *rows)  # type: ignore[no-any-return] # just made


def _torch() -> Any:
    return sys.modules.get("torch")


@lru_cache(maxsize=64)
def _maker(structure: Node, columns: tuple[Column, ...]) -> Callable[..., Any] | None:
    """What makes the function of a structure for any memory; None where its containers are not simple."""
    if any(dtype_of(column.dtype, column.viewed_as) is None for column in columns):
        return None
    source = _Source(columns)
    return source.compiled() if source.take_apart(structure, "samples") else None


class _Source:
    """The lines of the function, and what its names stand for."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        torch = _torch()
        self._columns = columns
        self._names: dict[str, Any] = {"TENSOR": {torch.Tensor}, "stack": torch.stack, "dtype_of": attrgetter("dtype")}
        self._lines: list[str] = []
        self._leaf_count = 0

    def take_apart(self, node: Node, values: str) -> bool:
        """Adds the lines that get each leaf below ``node`` out of all ``values``; says whether there are such lines."""
        if isinstance(node, Leaf):
            self._add_leaf(values)
            return True
        if node.kind in OF_A_TYPE or not node.keys:
            return False
        named = self._named(node.type)
        self._lines.append(f"if set(map(type, {values})) != {{{named}}}: return False")
        if node.kind != "dataclass":
            self._lines.append(f"if set(map(len, {values})) != {{{len(node.keys)}}}: return False")
        if node.kind == "dict" and len(node.keys) > 1:
            self._lines.append(f"if not {self._named(node.is_made_by)}({values}[0]): return False")
        parts = [f"{values}_{at}" for at in range(len(node.keys))]
        self._lines += self._unpacking(node.kind, [self._named(key) for key in node.keys], values, parts)
        return all(self.take_apart(child, part) for child, part in zip(node.children, parts, strict=True))

    def compiled(self) -> Callable[..., Any]:
        """What makes the function."""
        given = [f"{name}{at}" for name in ("view", "rows") for at in range(len(self._columns))]
        body = "\n            ".join(self._lines)
        source = (
            f"def maker({', '.join(given)}):\n"
            "    room = len(rows0)\n"
            "    def gather(samples):\n"
            "        count = len(samples)\n"
            "        try:\n"
            f"            {body}\n"
            # A tensor that has no bytes, or other ones; a number that is too large; a key that is missing.
            "        except (RuntimeError, OverflowError, KeyError, AttributeError): return False\n"
            "        return True\n"
            "    return gather\n"
        )
        exec(source, self._names)  # noqa: S102 - only names of ours
        return self._names["maker"]  # type: ignore[no-any-return] # just made

    def _unpacking(self, kind: str, keys: list[str], values: str, parts: list[str]) -> list[str]:
        if kind in ("tuple", "list"):
            return [f"{', '.join(parts)}, = zip(*{values})"]
        take = "getattr(one, {})" if kind == "dataclass" else "one[{}]"
        return [f"{part} = [{take.format(key)} for one in {values}]" for part, key in zip(parts, keys, strict=True)]

    def _add_leaf(self, values: str) -> None:
        at = self._leaf_count
        self._leaf_count += 1
        column = self._columns[at]
        kind = self._named({dtype_of(column.dtype, column.viewed_as)})
        shape = self._named(column.shape)
        self._lines += [
            f"kinds = set(map(type, {values}))",
            "if kinds == TENSOR:",
            # `stack` itself refuses those of another shape than the first, of another place, and those without bytes.
            f"    if {values}[0].shape != {shape} or set(map(dtype_of, {values})) != {kind}: return False",
            # To cut rows off a tensor takes as long as to store a quarter of them.
            f"    stack({values}, out=rows{at} if count == room else rows{at}[:count])",
        ]
        number = NUMBERS.get(column.dtype)
        if number is not None and not column.shape and not column.viewed_as:
            self._lines += [f"elif kinds == {self._named({number})}: view{at}[:count] = {values}"]
        self._lines.append("else: return False")

    def _named(self, value: Any) -> str:
        name = f"given_{len(self._names)}"
        self._names[name] = value
        return name
