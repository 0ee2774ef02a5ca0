"""The structure of a sample: nested dicts, lists, tuples, namedtuples and dataclasses, with leaves at the ends.

A `Node` describes the structure without the leaves; it travels in messages and builds the same structure around other
leaves. What a leaf is, is decided here by what is not a container; what may be done with it, is not known here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias


class Mismatch(Exception):
    """A sample has another structure than the first of its batch had."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(path, expected, found)
        self.path, self.expected, self.found = path, expected, found


@dataclass(frozen=True, slots=True)
class Leaf:
    """The end of a path."""

    path: str
    """How one would write the way here in Python, after the sample's name."""

    def leaves(self, sample: Any) -> Iterator[Any]:
        """Walks ``sample``, which must have this structure; raises `Mismatch` where it has another."""
        yield sample

    def build(self, leaves: Iterator[Any]) -> Any:
        """What stands here."""
        return next(leaves)

    def ends(self) -> Iterator[Leaf]:
        """The leaves of the structure, in order."""
        yield self


@dataclass(frozen=True, slots=True)
class Branch:
    """A container. ``keys`` are a dict's keys, a dataclass's fields or a sequence's positions."""

    kind: str
    type: type
    keys: tuple[Any, ...]
    children: tuple[Node, ...]
    path: str

    def leaves(self, sample: Any) -> Iterator[Any]:
        """Walks ``sample``; see `Leaf.leaves`."""
        for child, part in zip(self.children, self.parts(sample), strict=True):
            yield from child.leaves(part)

    def parts(self, sample: Any) -> list[Any]:
        """The children of ``sample``, in the order of `keys`."""
        found: type = type(sample)
        if found is not self.type:
            raise Mismatch(self.path, self.type.__name__, found.__name__)
        if self.kind == "dict":
            # Looked for first: a defaultdict would make up what is missing.
            if len(sample) != len(self.keys) or not all(map(sample.__contains__, self.keys)):
                raise Mismatch(self.path, f"the keys {list(self.keys)}", f"the keys {list(sample)}")
            return [sample[key] for key in self.keys]
        if self.kind == "dataclass":
            return [getattr(sample, name) for name in self.keys]
        if len(sample) != len(self.keys):
            raise Mismatch(self.path, f"{len(self.keys)} items", f"{len(sample)} items")
        return list(sample)

    def build(self, leaves: Iterator[Any]) -> Any:
        """The container around other leaves."""
        return _BUILDERS[self.kind](self, [child.build(leaves) for child in self.children])

    def ends(self) -> Iterator[Leaf]:
        """The leaves below, in order."""
        for child in self.children:
            yield from child.ends()


#: One place in the structure.
Node: TypeAlias = Leaf | Branch


def describe(sample: Any, path: str = "sample") -> Node:
    """The structure of ``sample``."""
    if isinstance(sample, dict):
        paths = [f"{path}[{key!r}]" for key in sample]
        return _branch("dict", sample, path, tuple(sample), zip(sample.values(), paths, strict=True))
    if isinstance(sample, list | tuple):
        if fields := getattr(sample, "_fields", None):
            paths = [f"{path}.{name}" for name in fields]
            return _branch("tuple", sample, path, tuple(fields), zip(sample, paths, strict=True))
        paths = [f"{path}[{i}]" for i in range(len(sample))]
        kind = "list" if isinstance(sample, list) else "tuple"
        return _branch(kind, sample, path, tuple(range(len(sample))), zip(sample, paths, strict=True))
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        names = tuple(field.name for field in dataclasses.fields(sample))
        parts = ((getattr(sample, name), f"{path}.{name}") for name in names)
        return _branch("dataclass", sample, path, names, parts)
    return Leaf(path)


def _branch(kind: str, sample: Any, path: str, keys: tuple[Any, ...], parts: Iterable[tuple[Any, str]]) -> Branch:
    return Branch(kind, type(sample), keys, tuple(describe(part, at) for part, at in parts), path)


def _build_dict(node: Branch, parts: list[Any]) -> Any:
    if node.type is dict:
        return dict(zip(node.keys, parts, strict=True))
    made: Any = dict.__new__(node.type)  # a subclass's __init__ may want anything
    made.update(zip(node.keys, parts, strict=True))
    return made


def _build_list(node: Branch, parts: list[Any]) -> Any:
    if node.type is list:
        return parts
    made: Any = list.__new__(node.type)
    made.extend(parts)
    return made


def _build_tuple(node: Branch, parts: list[Any]) -> Any:
    if node.type is tuple:
        return tuple(parts)
    try:
        return tuple.__new__(node.type, parts)
    except TypeError:  # a type of C's own, such as torch.return_types.max
        pass
    try:
        return node.type(parts)
    except TypeError:  # one that holds no tensors, such as torch.Size
        return tuple(parts)


def _build_dataclass(node: Branch, parts: list[Any]) -> Any:
    made: Any = object.__new__(node.type)  # not through __init__: a check in __post_init__ was meant for one sample
    for name, part in zip(node.keys, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


_BUILDERS: dict[str, Callable[[Branch, list[Any]], Any]] = {
    "dict": _build_dict,
    "list": _build_list,
    "tuple": _build_tuple,
    "dataclass": _build_dataclass,
}
