"""What servers and clients say, damaged: it is read or refused, and nothing else happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from swift_loader import ProtocolError
from swift_loader.net import schema, values
from swift_loader.net.batches import checked_objects, spec_of
from swift_loader.net.frames import HEAD, HELLO, STRANGER, read_head, write_head
from swift_loader.plan.plan import EpochPlan
from swift_loader.serving.facts import facts_of, plan_of

ROWS = 8


def a_hello(data: bytes) -> None:
    if len(data) < HEAD.size:
        raise ProtocolError("too short")
    read_head(data, STRANGER)
    schema.read(schema.Hello, data[HEAD.size :])


def a_parcel(data: bytes) -> None:
    said = schema.read(schema.Parcel, data)
    spec_of(said.spec, ROWS)


def a_value(data: bytes) -> None:
    spec = spec_of(OBJECTS, ROWS)
    checked_objects(values.read(data), spec, 2)


def a_plan(data: bytes) -> None:
    plan_of(schema.read(schema.Facts, data)).step_count(0, 0)


def words(kind: type) -> Callable[[bytes], object]:
    return lambda data: schema.read(kind, data)


OBJECTS = schema.Spec("columns", schema.Leaf("sample"), [schema.Column("objects", "", [], "")], ROWS, [0], 0)
SPEC = schema.Spec(
    "columns",
    schema.Branch("dict", ["x", "y"], [schema.Leaf("x"), schema.Branch("list", [0], [schema.Leaf("y")], "y")], ""),
    [schema.Column("array", "float32", [3, 4], "bfloat16"), schema.Column("objects", "", [], "")],
    ROWS, [0, 384], 384,
)  # fmt: skip
PLAN = EpochPlan(
    sample_count=96, batch_size=8, consumer_count=2, shuffle=True, seed=7, window=16, mix=2, even="pad",
    drop_last=False, elastic=False, runs=None,
)  # fmt: skip
OBJECT = [[{"a": (1, -(1 << 70)), "b": np.arange(3)}, [torch.arange(3), np.float32(2), None, "text", b"bytes"]]]
HELLOS = [schema.hello("stream", session=b"x" * 16, received=3), schema.hello("loader", client="a\x1b[2J")]
#: How each is read, and what is whole.
KINDS: dict[str, tuple[Callable[[bytes], Any], list[bytes]]] = {
    "hello": (a_hello, [write_head(HELLO, len(meta)) + meta for meta in HELLOS]),
    "parcel": (a_parcel, [schema.write(schema.Parcel(0, 1, 8, 0, [0] * 9, 5, [(3, "why")], SPEC))]),
    "value": (a_value, [values.write(OBJECT)]),
    "plan": (a_plan, [schema.write(facts_of(PLAN, "batch"))]),
    "failure": (words(schema.Failure), [schema.write(schema.Failure(0, 1, "a", "b", "c", "d", 5))]),
    "welcome": (words(schema.Welcome), [schema.write(schema.Welcome(1, "1.0", b"s", 2, "id", b"facts"))]),
}


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, some left out or doubled, some made up at the end."""
    data = bytearray(whole)
    for _ in range(chance.randrange(4)):
        data[chance.randrange(len(data))] = chance.choice((chance.randrange(256), 0, 0x7F, 0x80, 0xFF, 0xC1))
    if chance.random() < 0.2:
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(9)] = data[at : at + chance.randrange(9)] * chance.randrange(3)
    if chance.random() < 0.2:
        data = data[: chance.randrange(len(data) + 1)] + chance.randbytes(chance.randrange(40))
    return bytes(data)


def fuzzed(kind: str, count: int, seed: int) -> int:
    """How many of them were read."""
    read, whole = KINDS[kind]
    chance, understood = random.Random(seed), 0
    for _ in range(count):
        try:
            read(damaged(chance.choice(whole), chance))
            understood += 1
        except ProtocolError:
            continue
    return understood


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "count",
    [
        1_000,
        pytest.param(170_000, marks=pytest.mark.slow),
        pytest.param(1_700_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)]),
    ],
)
def test_what_is_said_damaged_is_read_or_refused(kind: str, count: int):
    assert 0 < fuzzed(kind, count, seed=count) < count


@pytest.mark.parametrize(
    "said",
    [
        schema.extension(5, b"--1"), schema.extension(5, b"-"), schema.extension(5, b"9" * 5000),
        schema.extension(4, schema.write(schema.Ext("float32", [0, 1 << 62, 1 << 62], b""))),
        schema.extension(4, schema.write(schema.Ext("float32", [0, 1 << 40, 1 << 40], b""))),
        schema.extension(4, schema.write(schema.Ext("qint8", [1], b"1"))),
        schema.extension(4, schema.write(schema.Ext("float4_e2m1fn_x2", [1], b"1"))),
        schema.extension(4, schema.write(schema.Ext("bits16", [1], b"11"))),
        schema.extension(2, schema.write(schema.Ext("<U999999999", [0], b""))),
        schema.extension(1, schema.write_value({})), schema.extension(9, b""),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused_or_are_values(said: Any):
    try:
        values.read(schema.write_value([[said]]))
    except ProtocolError:
        pass


@pytest.mark.parametrize("depth", [50, 300, 2_000])
def test_what_lies_too_deep_is_refused_or_read(depth: int):
    node, value = schema.Leaf("x"), 1
    for _ in range(min(depth, 300)):
        node = schema.Branch("list", [0], [node], "x")
    spec = schema.Spec("columns", node, [schema.Column("array", "float32", [3], "")], 8, [0], 96)
    try:
        spec_of(schema.read(schema.Parcel, schema.write(schema.Parcel(0, 1, 8, 0, [0] * 9, 5, [], spec))).spec, 8)
    except ProtocolError:
        pass
    data = b"\x91" * depth + schema.write_value(value)
    try:
        values.read(data)
    except ProtocolError:
        pass
