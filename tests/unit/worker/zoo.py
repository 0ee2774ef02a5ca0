"""Samples of all kinds, what torch's collate makes of them and what ours does."""

from __future__ import annotations

import array
import types
import warnings
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate

from tests.unit.batch.samples import same
from tests.unit.worker.making import Listed, Making


class Pair(NamedTuple):
    left: Any
    right: Any


class Other(NamedTuple):
    one: Any
    two: Any


class Own(dict):
    pass


class Tokens(UserDict):
    """As a tokenizer gives them: with something of its own beside the items."""

    def __init__(self, data, encodings=None):
        super().__init__(data)
        self.encodings = encodings


class Attributed(dict):
    """Its items are its attributes."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Frozen(Mapping):
    def __init__(self, items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


class Mutable(Frozen, MutableMapping):
    """Copied by `copy.copy`, it shares what holds its items."""

    def __setitem__(self, key, value):
        self._items[key] = value

    def __delitem__(self, key):
        del self._items[key]


class OwnList(list):
    pass


class Line(Sequence):
    def __init__(self, items):
        self._items = list(items)

    def __getitem__(self, place):
        return self._items[place]

    def __len__(self):
        return len(self._items)


class Computed(Line):
    """Made from something else than its items."""

    def __init__(self, first, *others):
        super().__init__([first, *others])


def _floats(i):
    return np.random.default_rng(i).standard_normal((2, 3))


#: What a leaf may be, for the i-th sample.
LEAVES = {
    "int": lambda i: i,
    "large int": lambda i: (1 << 62) + i,
    "float": lambda i: i + 0.1,
    "bool": lambda i: i % 2 == 0,
    "str": lambda i: f"text {i}",
    "bytes": lambda i: b"%d" % i,
    "np.bool": lambda i: np.bool_(i % 2),
    "np.uint8": np.uint8,
    "np.int32": lambda i: np.int32(-i),
    "np.int64": np.int64,
    "np.uint16": np.uint16,
    "np.float16": lambda i: np.float16(i / 3),
    "np.float32": lambda i: np.float32(i / 3),
    "np.float64": lambda i: np.float64(i / 3),
    "np.complex64": lambda i: np.complex64(i + 1j),
    "array of float32": lambda i: _floats(i).astype(np.float32),
    "array of float64": _floats,
    "array of int16": lambda i: (_floats(i) * 9).astype(np.int16),
    "array of bool": lambda i: _floats(i) > 0,
    "array of complex": lambda i: _floats(i) * (1 + 2j),
    "array of no dimensions": lambda i: np.array(i / 3, np.float32),
    "empty array": lambda i: np.zeros((0, 4), np.float32),
    "transposed array": lambda i: _floats(i).T,
    "memmap-like array": lambda i: _floats(i).view(np.ndarray),
    "tensor": lambda i: torch.from_numpy(_floats(i)),
    "tensor of bfloat16": lambda i: torch.from_numpy(_floats(i)).bfloat16(),
    "tensor of float8": lambda i: torch.from_numpy(_floats(i)).to(torch.float8_e4m3fn),
    "tensor of int64": lambda i: torch.arange(i, i + 5),
    "tensor of bool": lambda i: torch.tensor([i > 1, True]),
    "scalar tensor": lambda i: torch.tensor(i / 3),
    "conjugated tensor": lambda i: torch.tensor([1 + 1j * i]).conj(),
    "expanded tensor": lambda i: torch.tensor(float(i)).expand(2, 2),
    "empty tensor": lambda i: torch.empty(0, 3),
}  # fmt: skip
#: What it may stand in.
CONTAINERS = {
    "nothing": lambda leaf: leaf,
    "dict": lambda leaf: {"x": leaf, 7: 1},
    "OrderedDict": lambda leaf: OrderedDict(y=1, x=leaf),
    "defaultdict": lambda leaf: defaultdict(list, x=leaf, a=1),
    "own dict": lambda leaf: Own(x=leaf),
    "dict of attributes": lambda leaf: Attributed(x=leaf),
    "UserDict": lambda leaf: UserDict(x=leaf, y=2),
    "tokens": lambda leaf: Tokens({"x": leaf}, encodings="kept"),
    "ChainMap": lambda leaf: ChainMap({"x": leaf}, {"y": 1}),
    "mappingproxy": lambda leaf: types.MappingProxyType({"x": leaf, "y": 1}),
    "own mapping": lambda leaf: Frozen({"x": leaf, "y": 1}),
    "own mutable mapping": lambda leaf: Mutable({"x": leaf, "y": 1}),
    "list": lambda leaf: [leaf, 1],
    "tuple": lambda leaf: (1, leaf),
    "namedtuple": lambda leaf: Pair(leaf, 2),
    "own list": lambda leaf: OwnList([leaf]),
    "UserList": lambda leaf: UserList([leaf, 1]),
    "deque": lambda leaf: deque([leaf, 1]),
    "deque of a length": lambda leaf: deque([leaf, 1], maxlen=2),
    "own sequence": lambda leaf: Line([leaf, 1]),
    "nested": lambda leaf: {"a": [(leaf, {"b": UserDict(c=leaf)}), UserList([Pair(1, (leaf,))])]},
}
#: Containers of numbers alone.
NUMBERS = {
    "range": lambda i: range(i, i + 3),
    "bytearray": lambda i: bytearray([i, 5]),
    "memoryview": lambda i: memoryview(bytes([i, 5])),
    "array.array": lambda i: array.array("i", [i, 5]),
    "torch.Size": lambda i: torch.Size([i, 3]),
    "empty dict": lambda i: {},
    "empty list": lambda i: [],
}
MAPPINGS = [name for name in CONTAINERS if name != "nested" and isinstance(CONTAINERS[name](0), Mapping)]
SEQUENCES = ["list", "tuple", "namedtuple", "UserList", "deque", "own sequence"]
SCALARS = [name for name in LEAVES if np.ndim(LEAVES[name](0)) == 0 and name not in ("str", "bytes")]


def ours(samples, **settings):
    return Making(Listed([lambda sample=sample: sample for sample in samples]), len(samples), **settings).batch(0)


def theirs(samples):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return default_collate(samples)


def outcome(collate, samples):
    try:
        return collate(samples)
    except Exception as error:
        return error


def is_alike(one, other):
    """Whether our batch is torch's, but for what goes for all: a tuple stays one, and texts come as a list."""
    if isinstance(other, torch.Tensor):
        return isinstance(one, torch.Tensor) and same(one, other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and _is_text(other):
        return list(one) == list(other)
    if type(one) is tuple or isinstance(one, torch.Size):
        one = list(one)
    if type(one) is not type(other):
        return False
    if isinstance(other, Mapping):
        return list(one) == list(other) and all(is_alike(one[key], other[key]) for key in other)
    return len(one) == len(other) and all(map(is_alike, one, other))


def _is_text(values):
    return bool(values) and all(isinstance(value, str | bytes) for value in values)


def assert_alike(samples):
    one, other = ours(samples), theirs(samples)
    assert is_alike(one, other), f"{samples!r}: {one!r} is not {other!r}"
