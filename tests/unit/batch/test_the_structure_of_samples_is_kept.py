"""Taken apart and put together, a sample is what it was: any nesting of containers, of any type."""

import pickle
import time
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.tree import Branch, Leaf, Mismatch, describe
from tests.unit.batch.samples import Box, Checked, Named, Pair, Sealed, Typed, examples, structures

leaves = st.one_of(st.integers(), st.none(), st.text(max_size=3), st.floats(allow_nan=False))
samples = structures(leaves)


def _containers(sample):
    """The types of all containers, from the top on."""
    node = describe(sample)
    pending, types = [node], []
    while pending:
        node = pending.pop()
        if isinstance(node, Branch):
            types.append(node.type)
            pending += node.children
    return types


@examples
@given(samples)
def test_taken_apart_and_built_again_a_sample_is_equal(sample):
    structure = describe(sample)
    again = structure.build(structure.leaves(sample))
    assert again == sample
    assert _containers(again) == _containers(sample)


@examples
@given(samples)
def test_the_order_of_leaves_is_that_of_the_ends(sample):
    structure = describe(sample)
    numbered = structure.build(iter(range(len(list(structure.ends())))))
    assert list(structure.leaves(numbered)) == list(range(len(list(structure.ends()))))


@examples
@given(samples)
def test_a_path_is_what_one_writes_in_python(sample):
    structure = describe(sample)
    for end, leaf in zip(structure.ends(), structure.leaves(sample), strict=True):
        assert eval(end.path, {"sample": sample}) is leaf


@examples
@given(samples)
def test_a_structure_survives_pickle_and_stays_equal(sample):
    structure = describe(sample)
    again = pickle.loads(pickle.dumps(structure, protocol=5))
    assert again == structure
    assert hash(again) == hash(structure)


@examples
@given(samples, samples)
def test_leaves_come_from_equal_structures_only(one, other):
    structure = describe(one)
    if describe(other) == structure:
        assert len(list(structure.leaves(other))) == len(list(structure.ends()))
        return
    try:
        taken = list(structure.leaves(other))
    except Mismatch:
        return
    # A leaf of one may be a container in the other: what a leaf may be is not for the structure to say. Nor are keys
    # that are equal but not the same (1 and True), nor their order.
    assert len(taken) == len(list(structure.ends()))


@pytest.mark.parametrize(
    ("first", "other", "path"),
    [
        ((1, 2), (1, 2, 3), "sample"),
        ([1, [2]], [1, [2, 3]], "sample[1]"),
        ({"a": 1}, {"b": 1}, "sample"),
        ({"a": 1}, {}, "sample"),
        ({"a": 1}, {"a": 1, "b": 2}, "sample"),
        ({"a": (1,)}, {"a": 1}, "sample['a']"),
        (Box(1), Sealed(1), "sample"),
        (Typed([1]), Pair(1, 2), "sample"),
        (Pair(1, (2,)), Pair(1, {2}), "sample.right"),
        (Box([1]), Box(1), "sample.content"),
        ([1, 2], "ab", "sample"),
        ({"a": 1}, [("a", 1)], "sample"),
    ],
)
def test_another_structure_is_a_mismatch_that_names_the_place(first, other, path):
    with pytest.raises(Mismatch) as caught:
        list(describe(first).leaves(other))
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("first", "other", "leaves"),
    [
        ((1, 2), [3, 4], [3, 4]),
        ([1, 2], UserList([3, 4]), [3, 4]),
        (deque([1, 2]), range(3, 5), [3, 4]),
        (Pair(1, 2), (3, 4), [3, 4]),
        ((1, 2), Pair(3, 4), [3, 4]),
        (Pair(1, (2,)), Pair(3, [4]), [3, 4]),
        (Box([1]), Box((3,)), [3, None]),
        ({"a": 1, "b": 2}, OrderedDict(b=4, a=3), [3, 4]),
        (UserDict(a=1, b=2), {"b": 4, "a": 3}, [3, 4]),
        (OrderedDict(a=1), ChainMap({"a": 3}), [3]),
    ],
)
def test_any_sequence_does_for_another_and_any_mapping(first, other, leaves):
    assert list(describe(first).leaves(other)) == leaves


@pytest.mark.parametrize("make", [lambda **items: defaultdict(int, items), Counter], ids=["defaultdict", "Counter"])
def test_a_dict_that_makes_up_what_is_missing_is_a_mismatch_and_is_left_as_it_was(make):
    other = make(b=2)
    with pytest.raises(Mismatch, match="a"):
        list(describe(make(a=1)).leaves(other))
    assert dict(other) == {"b": 2}


def test_keys_may_come_in_another_order():
    structure = describe({"a": 1, "b": 2})
    assert list(structure.leaves({"b": "second", "a": "first"})) == ["first", "second"]


def test_a_dict_is_built_without_its_constructor():
    structure = describe(Named("x"))
    again = structure.build(iter(["y"]))
    assert type(again) is Named
    assert again == {"name": "y"}


def test_a_dataclass_is_built_without_its_checks():
    assert describe(Checked.of(1)).build(iter([2])).content == 2


def test_fields_that_are_no_arguments_are_leaves_too():
    @dataclass
    class Derived:
        given: int
        derived: int = field(init=False, default=0)

    sample = Derived(1)
    sample.derived = 5
    assert list(describe(sample).leaves(sample)) == [1, 5]
    assert describe(sample).build(iter([2, 6])).derived == 6


def test_a_subclass_of_list_or_tuple_stays_what_it_was():
    class Row(list):
        pass

    class Point(tuple):
        __slots__ = ()

    for sample in (Row([1, 2]), Point((1, 2))):
        again = describe(sample).build(iter([3, 4]))
        assert type(again) is type(sample)
        assert list(again) == [3, 4]


def test_a_tuple_type_of_c_is_built_by_its_own_rules():
    largest = torch.max(torch.arange(6).reshape(2, 3), dim=1)
    again = describe(largest).build(iter([torch.zeros(4), torch.ones(4)]))
    assert type(again) is type(largest)
    assert torch.equal(again.indices, torch.ones(4))
    moment = time.gmtime(0)
    assert type(describe(moment).build(iter(moment))) is time.struct_time


def test_a_tuple_that_holds_no_tensors_becomes_a_plain_one():
    columns = [torch.tensor([2, 2]), torch.tensor([3, 3])]
    again = describe(torch.Size([2, 3])).build(iter(columns))
    assert type(again) is tuple
    assert list(again) == columns


def test_a_class_is_a_leaf():
    assert isinstance(describe(Box), Leaf)


def test_empty_containers_have_no_leaves_and_are_kept():
    sample = {"none": (), "of": [], "these": {}}
    structure = describe(sample)
    assert list(structure.ends()) == []
    assert structure.build(iter(())) == sample
