"""What is said of a loader's batch: its make as plain data, looked at before it is believed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from swift_loader.batch import layout, tree
from swift_loader.errors import ProtocolError
from swift_loader.net import schema
from swift_loader.net.values import Unsayable

_TYPES: dict[str, type] = {"dict": dict, "list": list, "tuple": tuple}
#: torch's types that numpy has none for.
_VIEWED = {
    "", "bfloat16", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2",
}  # fmt: skip
_NUMBERS = "biufc"
_MOST_MAKES = 16


def said_of(spec: layout.BatchSpec) -> schema.Spec:
    """A batch's make, as it is sent.

    Raises:
        Unsayable: if it has containers, or numbers, that are not sent.
    """
    if spec.kind == "encoded":
        raise Unsayable("the batch is the bytes of a batch_encoder, which the client would need a decoder for")
    columns = [schema.Column(one.kind, one.dtype, list(one.shape), one.viewed_as) for one in spec.columns]
    structure = _said_of_node(spec.structure)
    return schema.Spec(spec.kind, structure, columns, spec.capacity, list(spec.offsets), spec.nbytes)


def spec_of(said: schema.Spec, most_rows: int) -> layout.BatchSpec:
    """The make that was sent.

    Raises:
        ProtocolError: if there can be no such batch.
    """
    columns = tuple(_column_of(one) for one in said.columns)
    structure = _node_of(said.structure)
    ends = sum(1 for _ in structure.ends())
    if said.kind == "object":
        if (ends, said.columns) != (1, [schema.Column("objects", "", [], "")]):
            raise ProtocolError("a batch that is one object, and has columns")
        return layout.OBJECT
    if ends != len(columns) or len(said.offsets) != len(columns) or not 0 <= said.capacity <= most_rows:
        raise ProtocolError(f"a batch of {ends} leaves, {len(columns)} columns and {said.capacity} rows")
    for column, offset in zip(columns, said.offsets, strict=True):
        if offset % layout.ALIGNMENT or offset + column.row_nbytes * said.capacity > said.nbytes:
            raise ProtocolError(f"a column at byte {offset} of a batch of {said.nbytes} bytes, where it does not fit")
    count = sum(column.kind == "objects" for column in columns)
    return layout.BatchSpec("columns", structure, columns, said.capacity, tuple(said.offsets), said.nbytes, count)


class Makes:
    """The makes that were told on a connection, by number: mostly each batch is as the one before.

    Args:
        most_rows: So many a batch may have.
    """

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._known: list[tuple[int, schema.Spec, layout.BatchSpec]] = []
        self._count = 0

    def known(self, said: schema.Spec) -> tuple[int, layout.BatchSpec, bool]:
        """The number of a make, the make itself, and whether the number has meant another or none until now.

        Raises:
            ProtocolError: if there can be no such batch.
        """
        for number, before, spec in self._known:
            if before == said:
                return number, spec, False
        spec, number = spec_of(said, self._most_rows), self._count % _MOST_MAKES
        self._count += 1
        self._known = [one for one in self._known if one[0] != number] + [(number, said, spec)]
        return number, spec, True


def checked_objects(objects: Any, spec: layout.BatchSpec, rows: int) -> list[list[Any]]:
    """What stands where a batch has objects.

    Raises:
        ProtocolError: if it does not fit the batch.
    """
    expected = 1 if spec.kind == "object" else rows
    is_one = isinstance(objects, list) and len(objects) == spec.object_count
    if not is_one or not all(isinstance(column, list) and len(column) == expected for column in objects):
        raise ProtocolError(f"the objects of a batch of {rows} rows do not fit it")
    return objects  # type: ignore[no-any-return] # just looked at


def _said_of_node(node: tree.Node) -> schema.Leaf | schema.Branch:
    if isinstance(node, tree.Branch):
        if node.type is not _TYPES.get(node.kind) or node.has_attributes:
            raise Unsayable(
                f"{node.path} is a {node.type.__module__}.{node.type.__qualname__}; containers that are sent are dict, "
                "list and tuple"
            )
        if not all(isinstance(key, (str, int, float, bool, type(None))) for key in node.keys):
            raise Unsayable(f"{node.path} has keys that are neither text nor numbers")
        return schema.Branch(node.kind, list(node.keys), [_said_of_node(one) for one in node.children], node.path)  # type: ignore[arg-type] # one of the three
    return schema.Leaf(node.path)


def _node_of(said: schema.Leaf | schema.Branch) -> tree.Node:
    if isinstance(said, schema.Leaf):
        return tree.Leaf(said.path)
    keys, children = tuple(said.keys), tuple(map(_node_of, said.children))
    if len(keys) != len(children) or len(set(keys)) != len(keys):
        raise ProtocolError(f"a {said.kind} of {len(children)} parts with {len(keys)} keys")
    return tree.Branch(said.kind, _TYPES[said.kind], keys, children, said.path)


def _column_of(said: schema.Column) -> layout.Column:
    if said.kind == "objects":
        return layout.Column("objects", said.dtype, (), _viewed(said.viewed_as))
    if not said.dtype.isidentifier():  # else numpy would read it as a list of types, and raise whatever it may
        raise ProtocolError(f"a column of type {said.dtype!r}, which there is not")
    try:
        dtype = np.dtype(said.dtype)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a column of type {said.dtype!r}, which there is not") from error
    if dtype.kind not in _NUMBERS or dtype.name != said.dtype:
        raise ProtocolError(f"a column of type {said.dtype!r}, which is not sent")
    row_nbytes = dtype.itemsize * math.prod(said.shape)
    return layout.Column("array", said.dtype, tuple(said.shape), _viewed(said.viewed_as), row_nbytes)


def _viewed(name: str) -> str:
    if name not in _VIEWED:
        raise ProtocolError(f"a column of torch's type {name!r}, which there is not")
    return name
