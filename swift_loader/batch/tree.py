"""The structure of a sample: nested mappings, sequences, namedtuples and dataclasses, with leaves at the ends. Pure.

A `Node` describes the structure without the leaves; it travels in messages and builds the same structure around other
leaves. What a leaf is, is decided here by what is not a container; what may be done with it, is not known here.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from swift_loader.batch.containers import (
    Attributes,
    attributes_of,
    is_mapping,
    is_sequence,
    mapping_around,
    sequence_around,
)

#: Kinds of containers whose parts go by keys, and of those of other types than dict, list and tuple.
_MAPPINGS = ("dict", "mapping")
OF_A_TYPE = ("mapping", "sequence")
#: So many keys are told in words.
_FEW = 8
#: What two samples differ in.
Difference = Literal["type", "keys", "length", "dtype", "shape", "dtype and shape", "size"]


class Mismatch(Exception):
    """A sample has another structure than the first of its batch had."""

    def __init__(self, path: str, expected: str, found: str, differs_in: Difference) -> None:
        super().__init__(path, expected, found, differs_in)
        self.path, self.expected, self.found, self.differs_in = path, expected, found, differs_in


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
class Beyond(Leaf):
    """What a container has beyond its items. `leaves` gives the container: only the first sample's is looked at."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A container. ``keys`` are a mapping's keys, a dataclass's fields or a sequence's positions.

    One of a type of its own ("mapping", "sequence") that has attributes has one child more, the first: a `Beyond`.
    """

    kind: str
    type: type
    keys: tuple[Any, ...]
    children: tuple[Node, ...]
    path: str

    @property
    def has_attributes(self) -> bool:
        """Whether the first child is what the container has beyond its items."""
        return len(self.children) > len(self.keys)

    def leaves(self, sample: Any) -> Iterator[Any]:
        """Walks ``sample``; see `Leaf.leaves`."""
        for child, part in zip(self.children, self.parts(sample), strict=True):
            yield from child.leaves(part)

    def parts(self, sample: Any) -> list[Any]:
        """The children of ``sample``, in the order of `keys`. As for torch, any mapping does for another with its keys,
        any sequence for another of its length.
        """
        if type(sample) is not self.type and not self._is_like(sample):
            raise Mismatch(self.path, f"a {self.type.__name__}", f"a {type(sample).__name__}", "type")
        if self.kind == "dataclass":
            return [getattr(sample, name) for name in self.keys]
        if self.kind in _MAPPINGS:
            keys = sample.keys()
            # Looked for first: a defaultdict would make up what is missing.
            if len(keys) != len(self.keys) or not all(map(keys.__contains__, self.keys)):
                raise Mismatch(self.path, _in_words(self.keys, keys), _in_words(keys, self.keys), "keys")
            items = [sample[key] for key in self.keys]
        else:
            if len(sample) != len(self.keys):
                raise Mismatch(self.path, f"{len(self.keys)} items", f"{len(sample)} items", "length")
            items = list(sample)
        return [sample, *items] if self.has_attributes else items

    def parts_if_same(self, sample: Any) -> list[Any] | None:
        """As `parts`, of a sample of this very type; None for all others."""
        if type(sample) is not self.type:
            return None
        try:
            return self.parts(sample)
        except Mismatch:
            return None

    def is_made_by(self, sample: Any) -> bool:
        """Whether ``sample``, of which `parts` are known, would be described by this: its keys come in this order."""
        if self.kind in _MAPPINGS and tuple(sample.keys()) != self.keys:
            return False
        return self.kind not in OF_A_TYPE or bool(attributes_of(sample)) == self.has_attributes

    def _is_like(self, sample: Any) -> bool:
        if self.kind in _MAPPINGS:
            return is_mapping(sample)
        if self.kind == "dataclass" or not is_sequence(sample):
            return False
        names, own_names = getattr(sample, "_fields", None), getattr(self.type, "_fields", None)
        return names is None or own_names is None or names == own_names

    def build(self, leaves: Iterator[Any]) -> Any:
        """The container around other leaves."""
        parts = [child.build(leaves) for child in self.children]
        return _BUILDERS[self.kind](self, parts)

    def ends(self) -> Iterator[Leaf]:
        """The leaves below, in order."""
        for child in self.children:
            yield from child.ends()


def _in_words(keys: Collection[Any], others: Collection[Any]) -> str:
    """Some keys; of many only those that are not among the others."""
    if len(keys) <= _FEW:
        return f"the keys {list(keys)}"
    odd = [key for key in keys if key not in others]
    return f"{len(keys)} keys" + (f", among them {odd[:_FEW]}" if odd else "")


#: One place in the structure.
Node: TypeAlias = Leaf | Branch


def describe(sample: Any, path: str = "sample", *, attributes: bool = False) -> Node:
    """The structure of ``sample``; if so wished, with a leaf for what containers have beyond their items."""
    if isinstance(sample, list | tuple) and (fields := getattr(sample, "_fields", None)):
        steps = [(part, f"{path}.{name}") for name, part in zip(fields, sample, strict=True)]
        return _branch("tuple", sample, path, tuple(fields), steps, attributes=attributes)
    if isinstance(sample, dict) or (is_mapping(sample) and not _is_dataclass(sample)):
        kind = "dict" if type(sample) in (dict, OrderedDict) else "mapping"
        keys = tuple(sample.keys())
        steps = [(sample[key], f"{path}[{key!r}]") for key in keys]
        return _branch(kind, sample, path, keys, steps, attributes=attributes)
    if isinstance(sample, list | tuple) or (is_sequence(sample) and not _is_dataclass(sample)):
        kind = "tuple" if isinstance(sample, tuple) else "list" if type(sample) is list else "sequence"
        steps = [(part, f"{path}[{i}]") for i, part in enumerate(sample)]
        return _branch(kind, sample, path, tuple(range(len(steps))), steps, attributes=attributes)
    if _is_dataclass(sample):
        names = tuple(field.name for field in dataclasses.fields(sample))
        steps = [(getattr(sample, name), f"{path}.{name}") for name in names]
        return _branch("dataclass", sample, path, names, steps, attributes=attributes)
    return Leaf(path)


def _is_dataclass(sample: Any) -> bool:
    # A tensorclass holds its fields elsewhere.
    is_known = dataclasses.is_dataclass(sample) and not hasattr(type(sample), "_is_tensorclass")
    return is_known and not isinstance(sample, type)


def _branch(
    kind: str, sample: Any, path: str, keys: tuple[Any, ...], steps: Iterable[tuple[Any, str]], *, attributes: bool
) -> Branch:
    children = tuple(describe(part, at, attributes=attributes) for part, at in steps)
    if attributes and kind in OF_A_TYPE and attributes_of(sample):
        children = (Beyond(f"{path}.__dict__"), *children)
    return Branch(kind, type(sample), keys, children, path)


def _build_dict(node: Branch, parts: list[Any]) -> Any:
    items = dict(zip(node.keys, parts, strict=True))
    return items if node.type is dict else mapping_around(node.type, items, Attributes())


def _build_mapping(node: Branch, parts: list[Any]) -> Any:
    attributes, parts = _attributes_first(node, parts)
    return mapping_around(node.type, dict(zip(node.keys, parts, strict=True)), attributes)


def _build_sequence(node: Branch, parts: list[Any]) -> Any:
    attributes, parts = _attributes_first(node, parts)
    return sequence_around(node.type, parts, attributes)


def _attributes_first(node: Branch, parts: list[Any]) -> tuple[Attributes, list[Any]]:
    """The attributes, of which the column holds the first sample's alone, and the items."""
    return (parts[0][0], parts[1:]) if node.has_attributes else (Attributes(), parts)


def _build_list(node: Branch, parts: list[Any]) -> Any:
    return parts if node.type is list else sequence_around(node.type, parts, Attributes())


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
    "mapping": _build_mapping,
    "list": _build_list,
    "sequence": _build_sequence,
    "tuple": _build_tuple,
    "dataclass": _build_dataclass,
}
