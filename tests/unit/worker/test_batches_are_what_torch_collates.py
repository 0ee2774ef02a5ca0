"""What torch's `default_collate` batches, ours batches: the same values, dtypes, shapes, containers and order of keys.

Leaves of all kinds in containers of all kinds, each leaf and each container beside each other, and structures drawn at
random.
"""

from __future__ import annotations

import types
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.misfit import Rounded
from swift_loader.worker.unmade import MakeFailed
from tests.slow import examples
from tests.unit.batch.samples import same, written
from tests.unit.worker.making import Listed, Making
from tests.unit.worker.zoo import (
    CONTAINERS,
    LEAVES,
    MAPPINGS,
    NUMBERS,
    SCALARS,
    SEQUENCES,
    Attributed,
    Computed,
    Frozen,
    Line,
    Mutable,
    Own,
    OwnList,
    Tokens,
    assert_alike,
    is_alike,
    ours,
    outcome,
    theirs,
)

ROWS = 3


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


@settings(max_examples=examples(300), derandomize=True, deadline=None, database=None)
@given(st.lists(_shapes(), min_size=1, max_size=3), st.randoms(use_true_random=False), st.integers(1, 4))
def test_structures_drawn_at_random_whatever_was_batched_before(shapes, random, rows):
    batches = [[_sample_of(shape, i, random) for i in range(rows)] for shape in [*shapes, *shapes]]
    making = Making(Listed([lambda sample=sample: sample for batch in batches for sample in batch]), rows)
    for step, samples in enumerate(batches):
        one, other = making.batch(step), theirs(samples)
        assert is_alike(one, other), f"{samples!r}: {one!r} is not {other!r}"
