"""What comes back from a store is what was there: the same types, dtypes, shapes and values."""

from __future__ import annotations

from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch

from swift_loader.batch.record import MISSING, form_of
from tests.unit.reuse.stores import flip, keep, opened, same, text


class Pair(NamedTuple):
    left: int
    right: float


@dataclass
class Record:
    x: object
    y: int


WITH_FORM = {
    "array": np.arange(12, dtype=np.float32).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "strided": np.arange(20)[::2],
    "no bytes": np.zeros((3, 0)),
    "a number": np.array(5.0),
    "int": -3,
    "float": 2.5,
    "bool": True,
    "complex": 1 + 2j,
    "scalar": np.float16(1.5),
    "nested": {"a": [1, (2.0, np.uint8(3))], "b": Pair(1, 2.0)},
    "dataclass": Record(np.arange(3), 4),
    "tensor": torch.arange(6).reshape(2, 3),
    "bfloat16": torch.arange(4, dtype=torch.bfloat16),
    "conjugate": torch.tensor([1 + 2j, 3j]).conj(),
    "numbers": {"i": 1, "t": torch.tensor(2.0), "n": np.arange(2, dtype=np.int8)},
}
PICKLED = {
    "text": "word",
    "bytes": b"abc",
    "nothing": None,
    "large int": 1 << 80,
    "text in a dict": {"x": np.arange(3), "s": "word"},
    "other order": np.arange(4, dtype=">i4"),
    "strings": np.array(["a", "bc"]),
    "records": np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
    "set": {1, 2},
    "large": (np.arange(50_000), "word"),
    "large tensors": [torch.arange(50_000), "word"],
    "gradient": torch.ones(2, requires_grad=True),
}


def _alike(one, other) -> bool:
    if isinstance(one, Record):
        return type(other) is Record and same(one.x, other.x) and one.y == other.y
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.detach(), other.detach())
    if isinstance(one, dict):
        return list(one) == list(other) and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(_alike, one, other))
    return same(one, other)


@pytest.mark.parametrize("maps", [True, False])
@pytest.mark.parametrize("name", [*WITH_FORM, *PICKLED])
def test_a_sample_of_any_kind_comes_back_as_it_was(name: str, maps: bool, tmp_path):
    value = WITH_FORM.get(name, PICKLED.get(name))
    assert (form_of(value) is not None) == (name in WITH_FORM)
    store = opened(tmp_path, maps=maps)
    assert keep(store, 3, 0, value)
    assert _alike(store.get(3, 0), value)
    assert store.get(3, 1) is MISSING
    store.close()
    store = opened(tmp_path, maps=maps)
    assert _alike(store.get(3, 0), value)
    store.close()


def test_what_comes_back_can_be_changed_and_harms_nothing(tmp_path):
    store = opened(tmp_path)
    keep(store, 0, 0, {"x": np.zeros(4)})
    keep(store, 1, 0, text(9000))
    store.get(0, 0)["x"] += 1
    store.get(1, 0)[1][:] = 0
    assert same(store.get(0, 0), {"x": np.zeros(4)})
    assert same(store.get(1, 0), text(9000))
    store.close()


def _shaped(number: int):
    return {
        "x": torch.full((number, 3), number),
        "y": [np.full(number % 7, number), number],
        "z": np.zeros((2, 0, number)),
    }


def test_samples_of_many_shapes_have_one_form_and_those_of_many_structures_are_pickled(tmp_path):
    store = opened(tmp_path, 400)
    for number in range(200):
        assert keep(store, number, 0, _shaped(number))
        assert keep(store, 200 + number, 0, {number: np.arange(number)})
    store.close()
    store = opened(tmp_path, 400)
    assert all(_alike(store.get(number, 0), _shaped(number)) for number in range(200))
    assert all(_alike(store.get(200 + number, 0), {number: np.arange(number)}) for number in range(200))
    forms = [store.entry(number).form for number in range(400)]
    assert len(set(forms[100:200])) == 1
    assert forms[-1] == 0
    assert max(forms) <= 64
    for number in range(100, 200):
        found = store.entry(number)
        for bit in (number % 64, 64 * 5 + 62, 8 * (found.nbytes - 1)):  # in two lengths, and in the last byte
            flip(tmp_path / "kept.data", 8 * found.offset + bit)
            assert store.get(number, 0) is MISSING
            flip(tmp_path / "kept.data", 8 * found.offset + bit)
        assert _alike(store.get(number, 0), _shaped(number))
    store.close()


@pytest.mark.parametrize(
    "container", [UserDict(x=1), Counter(x=1), defaultdict(list, x=1), deque([1]), ChainMap({"x": 1})], ids=repr
)
def test_a_container_of_another_type_may_be_more_than_its_items_and_is_pickled(container):
    assert form_of({"a": container}) is None
    assert form_of({"a": OrderedDict(x=1)}) is not None
