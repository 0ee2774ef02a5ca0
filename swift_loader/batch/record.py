"""What a sample looks like, and its bytes: what has arrays and numbers is kept as these, all else as a pickle.

A `Form` tells the structure, dtypes and shapes once for all samples that are alike, so that of each only its bytes are
kept, and can be put to their rows in a slot as they are. What comes back is what was there: an int as an int, a tensor
as a tensor; an array is C-contiguous, in memory of its own.
"""

from __future__ import annotations

import importlib
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self, TypeAlias

import numpy as np

from swift_loader.batch.codec import encode
from swift_loader.batch.collate import spec_of
from swift_loader.batch.layout import Column, aligned
from swift_loader.batch.misfit import Unbatchable
from swift_loader.batch.tree import OF_A_TYPE, Leaf, Node

#: Makes an array for a leaf, by its number, of a shape and a dtype; it may know a better place than `numpy.empty`.
Empty: TypeAlias = Callable[[int, tuple[int, ...], str], Any]

#: Such leaves are kept as numbers. Exactly these types: what is derived from them may be more.
_NUMBERS: dict[type, str] = {int: "int64", float: "float64", bool: "bool", complex: "complex128"}
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
#: More pieces than this one system call does not write.
_MOST_LEAVES = 256
_HEAD = struct.Struct("<QQ")
_SPAN = struct.Struct("<QQ")

#: The number of what has no form: it is pickled.
PICKLED = 0

MISSING = object()
"""Stands for a sample that is not kept."""


@dataclass(frozen=True, slots=True)
class Form:
    """All that samples which are alike have in common."""

    structure: Node
    columns: tuple[Column, ...]
    kinds: tuple[str, ...]
    """What each leaf is: "int", "float", "bool", "complex", "ndarray", "scalar" or "tensor"."""

    is_open: bool = False
    """Only how many dimensions there are is common (``shape`` has a 0 for each): the shapes stand before the bytes."""

    @property
    def nbytes(self) -> int:
        """The bytes of one sample, or of its shapes."""
        if self.is_open:
            return 8 * sum(len(column.shape) for column in self.columns)
        return sum(column.row_nbytes for column in self.columns)

    def room(self, empty: Empty) -> list[Any]:
        """Arrays for the leaves of one sample."""
        return [empty(leaf, column.shape, column.dtype) for leaf, column in enumerate(self.columns)]

    def opened(self, leaves: Sequence[Any]) -> tuple[Self, list[Any]]:
        """The open form of a sample that has this one, and its shapes and leaves."""
        columns = tuple(replace(column, shape=(0,) * len(column.shape), row_nbytes=0) for column in self.columns)
        shapes = np.array([length for leaf in leaves for length in leaf.shape], np.int64)
        return replace(self, columns=columns, is_open=True), [shapes, *leaves]

    def room_of(self, shapes: Any, nbytes: int, empty: Empty) -> list[Any] | None:
        """Arrays for leaves of these shapes, if they take so many bytes in all: else the shapes are damaged."""
        rest = iter(shapes.tolist())
        told = [tuple(next(rest) for _ in column.shape) for column in self.columns]
        if min(map(min, filter(None, told)), default=0) < 0:
            return None
        sizes = [
            prod(shape) * np.dtype(column.dtype).itemsize for shape, column in zip(told, self.columns, strict=True)
        ]
        if sum(sizes) != nbytes:
            return None
        return [empty(leaf, shape, self.columns[leaf].dtype) for leaf, shape in enumerate(told)]

    def sample(self, leaves: Sequence[Any]) -> Any:
        """The sample again, around leaves that were read."""
        return self.structure.build(_leaves(self, leaves))


def anywhere(leaf: int, shape: tuple[int, ...], dtype: str) -> Any:  # noqa: ARG001 - as others need it
    """An `Empty` that knows no better place."""
    return np.empty(shape, dtype)


def form_of(sample: Any) -> tuple[Form, list[Any]] | None:
    """The form of ``sample``, and its leaves' bytes as arrays; None for what is better pickled."""
    try:
        spec = spec_of(sample, 1)
        leaves = list(spec.structure.leaves(sample))
        if spec.object_count or len(leaves) > _MOST_LEAVES or not _is_plain(spec.structure):
            return None
        kinds = tuple(_kind_of(leaf) for leaf in leaves)
    except (Unbatchable, _Other, ValueError):
        return None
    form = Form(spec.structure, spec.columns, kinds)
    return form, [_bytes_of(leaf, column) for leaf, column in zip(leaves, form.columns, strict=True)]


def pickled(sample: Any) -> list[Any]:
    """The bytes of a sample of any kind, in pieces.

    Raises:
        Exception: whatever its classes raise, if it cannot be pickled.
    """
    encoded = encode(sample)
    spans, end = [], aligned(_HEAD.size + _SPAN.size * len(encoded.buffers) + len(encoded.stream))
    for buffer in encoded.buffers:
        spans.append((end, buffer.nbytes))
        end = aligned(end + buffer.nbytes)
    memory = np.zeros(end, np.uint8)
    head = b"".join((
        _HEAD.pack(len(encoded.stream), len(spans)), *(_SPAN.pack(*span) for span in spans), encoded.stream,
    ))  # fmt: skip
    memory[: len(head)] = np.frombuffer(head, np.uint8)
    for (start, nbytes), buffer in zip(spans, encoded.buffers, strict=True):
        memory[start : start + nbytes] = np.frombuffer(buffer, np.uint8)
    return [memory]


def unpickled(memory: Any, home: Callable[[str], Any]) -> Any:
    """The sample again; its large arrays lie in ``memory``. ``home`` finds classes of ``__main__`` by their names."""
    view = memoryview(memory)
    stream_nbytes, count = _HEAD.unpack_from(view)
    start = _HEAD.size + _SPAN.size * count
    spans = _SPAN.iter_unpack(view[_HEAD.size : start])
    buffers = [view[place : place + nbytes] for place, nbytes in spans]
    return load(view[start : start + stream_nbytes], buffers, home)


def load(stream: Any, buffers: Sequence[Any], home: Callable[[str], Any]) -> Any:
    """What was pickled by `encode`, in a process whose ``__main__`` is another."""
    import io  # noqa: PLC0415

    return _Unpickler(io.BytesIO(stream), home, buffers).load()


class _Other(Exception):
    """A leaf that is better pickled."""


class _Unpickler(pickle.Unpickler):
    """Finds classes of ``__main__`` where they are here, and torch where the sample is the first to need it."""

    def __init__(self, file: Any, home: Callable[[str], Any], buffers: Sequence[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._home = home

    def find_class(self, module: str, name: str) -> Any:
        if module == "swift_loader.errors" and name == "class_of_main":
            return self._home
        if module == "swift_loader.batch.codec" and name == "_tensor_of":
            _torch()
        return super().find_class(module, name)


def _is_plain(node: Node) -> bool:
    """Whether its containers are made again as they were: those of other types may be more than their items."""
    return isinstance(node, Leaf) or (node.kind not in OF_A_TYPE and all(map(_is_plain, node.children)))


def _kind_of(leaf: Any) -> str:
    kind = type(leaf)
    if kind in _NUMBERS:
        if kind is int and not _LEAST <= leaf <= _MOST:
            raise _Other
        return kind.__name__
    if kind is np.ndarray or isinstance(leaf, np.generic):
        if not leaf.dtype.isnative:
            raise _Other
        return "ndarray" if kind is np.ndarray else "scalar"
    torch = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor and not leaf.requires_grad:
        return "tensor"
    raise _Other


def _bytes_of(leaf: Any, column: Column) -> Any:
    if type(leaf) in _NUMBERS:
        return np.array(leaf, column.dtype)
    if not isinstance(leaf, np.ndarray | np.generic):
        torch = sys.modules["torch"]  # the leaf is a tensor
        plain = leaf.detach().resolve_conj().resolve_neg()
        leaf = (plain.view(getattr(torch, column.dtype)) if column.viewed_as else plain).numpy()
    array = np.asarray(leaf)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _leaves(form: Form, leaves: Sequence[Any]) -> Iterator[Any]:
    for leaf, column, kind in zip(leaves, form.columns, form.kinds, strict=True):
        if kind == "ndarray":
            yield leaf
        elif kind == "tensor":
            torch = _torch()
            tensor = torch.from_numpy(leaf)
            yield tensor.view(getattr(torch, column.viewed_as)) if column.viewed_as else tensor
        else:
            yield leaf[()] if kind == "scalar" else leaf.item()


def _torch() -> Any:
    """The dataset makes tensors, but what is kept may be read before it is asked for any."""
    return sys.modules.get("torch") or importlib.import_module("torch")
