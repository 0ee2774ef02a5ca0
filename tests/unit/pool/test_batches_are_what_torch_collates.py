"""What torch's `default_collate` batches, ours batches: the same values, dtypes, shapes, containers and order of keys.

Leaves of all kinds in containers of all kinds, each leaf and each container beside each other, and structures drawn at
random. Where the two differ on purpose, a table in the page for those who come from torch says so; it is checked here.
"""

from __future__ import annotations

import array
import types
import warnings
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.misfit import Rounded
from swift_loader.errors import LayoutError
from swift_loader.pool.fetch import MakeFailed
from tests.unit.batch.samples import same, written
from tests.unit.pool.making import Listed, Making

PAGE = Path(__file__).resolve().parents[3] / "swift_loader" / "docs" / "coming_from_torch.md"
ROWS = 3


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


def test_the_zoo_is_large():
    pairs = len(MAPPINGS) ** 2 + len(SEQUENCES) ** 2 + len(SCALARS) ** 2
    assert len(LEAVES) * len(CONTAINERS) + len(NUMBERS) + pairs > 1000


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_leaf_in_every_container(container):
    for leaf in LEAVES.values():
        assert_alike([CONTAINERS[container](leaf(i)) for i in range(ROWS)])


@pytest.mark.parametrize("make", NUMBERS.values(), ids=NUMBERS)
def test_containers_of_numbers_alone(make):
    assert_alike([make(i) for i in range(ROWS)])


@pytest.mark.parametrize("first", MAPPINGS)
def test_every_mapping_beside_every_other(first):
    for later in MAPPINGS:
        keys = CONTAINERS[first](0).keys()
        assert_alike([CONTAINERS[first](1), _with_keys(later, keys)])


def _with_keys(name, keys):
    """One of that type with these keys, in the opposite order."""
    items, like = dict.fromkeys(reversed(list(keys)), 5), CONTAINERS[name](0)
    if isinstance(like, defaultdict):
        return defaultdict(like.default_factory, items)
    return type(like)(items)


@pytest.mark.parametrize("first", SEQUENCES)
def test_every_sequence_beside_every_other(first):
    for later in SEQUENCES:
        assert_alike([CONTAINERS[first](1), CONTAINERS[later](2), CONTAINERS[first](3)])


#: Python's numbers have 64 bits among all others, whichever comes first; torch gives them 32 where they come later.
HALVED = {torch.float32: torch.float64, torch.complex64: torch.complex128}


@pytest.mark.parametrize("first", SCALARS)
def test_every_number_beside_every_other(first):
    for later in SCALARS:
        samples = [LEAVES[first](1), LEAVES[later](2)]
        one, other = outcome(ours, samples), outcome(theirs, samples)
        if isinstance(one, MakeFailed):
            is_rounded = isinstance(one.__cause__, Rounded)
            assert is_rounded or isinstance(other, Exception), f"{samples!r} could be {other!r}: {one}"
        elif isinstance(other, Exception):
            assert one.tolist() == [_plain(sample) for sample in samples]
        elif not same(one, other):
            assert "float" in (first, later), f"{samples!r}: {one!r} is not {other!r}"
            assert one.dtype in (HALVED.get(other.dtype), torch.complex128)
            assert one.tolist() == [_plain(sample) for sample in samples]


def _plain(number):
    return number.item() if hasattr(number, "item") else number


def test_attributes_are_those_of_the_first_sample():
    one = ours([Tokens({"x": 1}, encodings="first"), Tokens({"x": 2}, encodings="second")])
    assert (one.encodings, one["x"].tolist()) == ("first", [1, 2])
    assert ours([defaultdict(list, x=1)] * 2).default_factory is list
    assert ours([deque([1], maxlen=4)] * 2).maxlen == 4
    attributed = ours([Attributed(x=1), Attributed(x=2)])
    assert vars(attributed) is attributed
    own = OwnList([1, 2])
    own.name = "kept"
    assert ours([own, own]).name == "kept"


def test_attributes_of_the_first_sample_alone_are_sent():
    tokens = [Tokens({"x": i}, encodings=i) for i in range(3)]
    spec = spec_of(tokens[0], 3)
    writer = RowWriter(spec, np.zeros(spec.nbytes, np.uint8), ragged=False)
    _, (attributes,) = written(writer, tokens)
    assert [one["encodings"] for one in attributes] == [0]


def test_samples_are_left_as_they_are():
    samples = [Mutable({"x": i}) for i in range(2)]
    ours(samples)
    assert [sample["x"] for sample in samples] == [0, 1]


class Grudging(Mutable):
    """Takes numbers alone."""

    def __init__(self, items):
        super().__init__({key: int(value) for key, value in items.items()})

    def __setitem__(self, key, value):
        self._items[key] = int(value)


class Needing(Frozen):
    """Cannot be made of items alone."""

    def __init__(self, items, more):
        super().__init__(items)
        self.more = more
        self._items = types.MappingProxyType(self._items)


@pytest.mark.parametrize("sample", [Grudging({"x": 1}), Needing({"x": 1}, 2)], ids=["Grudging", "Needing"])
def test_what_cannot_be_made_of_batches_becomes_a_dict(sample):
    one = ours([sample, sample])
    assert type(one) is dict
    assert one["x"].tolist() == [1, 1]


class Doubling(UserDict):
    """Holds something else than what is put in."""

    def __setitem__(self, key, value):
        self.data[key] = value + value


def test_a_container_that_holds_something_else_becomes_a_dict():
    one = ours([Doubling(x=1)] * 2)
    assert type(one) is dict
    assert one["x"].tolist() == [2, 2]


def test_a_sequence_made_from_something_else_than_its_items_is_made_all_the_same():
    one = ours([Computed(1, 2), Computed(3, 4)])
    assert (type(one), [part.tolist() for part in one]) == (Computed, [[1, 3], [2, 4]])


#: Structures drawn at random: (how it is made of items, whether by key) and leaves, each row of its own.
_MAPS = [dict, OrderedDict, UserDict, ChainMap, types.MappingProxyType, Frozen, Mutable, Own, Tokens, Attributed]
_LINES = [list, tuple, UserList, deque, Line, OwnList]
_KINDS = [name for name in LEAVES if "float" not in name]


def _shapes():
    leaves = st.sampled_from(_KINDS)

    def deeper(inner):
        named = st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
        return st.one_of(
            st.tuples(st.sampled_from(_MAPS), named), st.tuples(st.sampled_from(_LINES), st.lists(inner, max_size=3))
        )

    return st.recursive(leaves, deeper, max_leaves=8)


def _sample_of(shape, i, random):
    """One sample of that shape; after the first, containers are of any type that goes with it, keys in any order."""
    if isinstance(shape, str):
        return LEAVES[shape](i)
    kind, inner = shape
    if isinstance(inner, dict):
        items = {key: _sample_of(inner[key], i, random) for key in random.sample(list(inner), len(inner))}
        return (random.choice(_MAPS) if i else kind)(items)
    return (random.choice(_LINES) if i else kind)([_sample_of(one, i, random) for one in inner])


@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(st.lists(_shapes(), min_size=1, max_size=3), st.randoms(use_true_random=False), st.integers(1, 4))
def test_structures_drawn_at_random_whatever_was_batched_before(shapes, random, rows):
    batches = [[_sample_of(shape, i, random) for i in range(rows)] for shape in [*shapes, *shapes]]
    making = Making(Listed([lambda sample=sample: sample for batch in batches for sample in batch]), rows)
    for step, samples in enumerate(batches):
        one, other = making.batch(step), theirs(samples)
        assert is_alike(one, other), f"{samples!r}: {one!r} is not {other!r}"


# What differs on purpose: the rows of the page's table, each with samples, torch's outcome and ours.


@dataclass
class Record:
    x: Any


class Image(torch.Tensor):
    pass


CASES = {
    "a tuple": lambda: [(1, 2)] * 2,
    "texts in a list": lambda: [["a"]] * 2,
    "a dataclass": lambda: [Record(1)] * 2,
    "`None`": lambda: [None] * 2,
    "dates, records, arrays of text or objects": lambda: [np.array(["a"])] * 2,
    "an array with negative strides": lambda: [np.arange(3)[::-1]] * 2,
    "a Python `complex`": lambda: [1j] * 2,
    "an `int`, then a `float`": lambda: [1, 0.1],
    "a numpy scalar of float32, then a Python `float`": lambda: [np.float32(1), 0.1],
    "a `float`, then a complex number": lambda: [0.5, np.complex64(1j)],
    "a tensor, then a number": lambda: [torch.tensor(1.0), 2],
    "floats, and an integer that they cannot hold, such as `2**53 + 1`": lambda: [0.5, 2**53 + 1],
    "a text, then a number": lambda: ["a", 1],
    "a key more than the first sample has": lambda: [{"a": 1}, {"a": 1, "b": 2}],
    "a namedtuple, then one with other fields": lambda: [Pair(1, 2), Other(1, 2)],
    "a namedtuple, then a longer tuple": lambda: [Pair(1, 2), (1, 2, 3)],
    "`Counter(a=1)`, then `Counter(a=5)`": lambda: [Counter(a=1), Counter(a=5)],
    "a tensor that requires a gradient": lambda: [torch.ones(1, requires_grad=True)] * 2,
    "a subclass of `Tensor`": lambda: [torch.ones(1).as_subclass(Image)] * 2,
    "`np.ma.MaskedArray`": lambda: [np.ma.array([1, 2], mask=[0, 1])] * 2,
    "a quantized tensor": lambda: [torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)] * 2,
    "complex32 and other dtypes that numpy lacks, but for bfloat16 and float8": lambda: (
        [torch.ones(2).to(torch.complex32)] * 2
    ),
}


def _shown(result):
    if isinstance(result, Exception):
        return "an error"
    if isinstance(result, torch.Tensor):
        kind = "" if type(result) is torch.Tensor else f", {type(result).__name__}"
        return str(result.dtype).removeprefix("torch.") + kind + (", with a gradient" if result.requires_grad else "")
    if isinstance(result, Counter):
        return f"`a` is {result['a'].tolist()}"
    if type(result) is list and result and type(result[0]) in (list, tuple):
        return f"a list of {type(result[0]).__name__}s"
    return f"a {type(result).__name__}"


def _told():
    """The page's rows: what is batched, what torch makes of it, what is made of it here."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 4}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch, of what is new in it or old
def test_what_differs_on_purpose_is_told_in_the_page(name):
    samples = CASES[name]()
    torchs, own = outcome(theirs, samples), outcome(ours, samples)
    assert (_shown(torchs), _shown(own)) == _told()[name]
    assert not isinstance(own, Exception) or isinstance(own, MakeFailed)
    if isinstance(own, MakeFailed):
        assert isinstance(own.report.exception(), LayoutError)


def test_the_pages_table_tells_of_nothing_else():
    assert _told().keys() - {"samples"} == CASES.keys()
