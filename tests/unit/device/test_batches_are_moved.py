"""Moving a batch of any make: tensors and arrays go to the device, all else stays what it was."""

import collections
from dataclasses import InitVar, dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.tree import describe
from swift_loader.device.host import move
from tests.unit.batch.samples import Box, Checked, Named, Pair, Sealed, examples, structures

leaves = st.one_of(
    st.integers(0, 3).map(torch.ones), st.integers(0, 3).map(np.ones), st.text(max_size=2), st.none(), st.integers()
)


@examples
@given(structures(leaves))
def test_every_tensor_and_array_is_moved_and_nothing_else(batch):
    structure, moved = describe(batch), move(batch, "meta")
    assert describe(moved) == structure
    for before, after in zip(structure.leaves(batch), structure.leaves(moved), strict=True):
        if isinstance(before, torch.Tensor | np.ndarray):
            assert after.device.type == "meta"
            assert after.shape == before.shape
        else:
            assert after is before


@examples
@given(structures(leaves))
def test_the_batch_itself_is_left_as_it_was(batch):
    structure = describe(batch)
    before = list(structure.leaves(batch))
    move(batch, "meta")
    assert all(one is other for one, other in zip(structure.leaves(batch), before, strict=True))


arrays = {
    "big-endian": np.arange(3, dtype=">f4"),
    "read-only": np.broadcast_to(np.float32(2), (3,)),
    "backwards": np.arange(3)[::-1],
    "strided": np.arange(9)[::3],
    "empty": np.zeros((0, 3)),
    "of no dimensions": np.array(3.5),
    "of bool": np.array([True]),
    "of uint16": np.array([65535], np.uint16),
}


@pytest.mark.parametrize("array", arrays.values(), ids=arrays)
def test_any_array_of_numbers_is_moved(array):
    moved = move({"x": array}, "cpu")["x"]
    assert isinstance(moved, torch.Tensor)
    assert np.array_equal(moved.numpy(), array)


others = {
    "text": np.array(["a"]),
    "dates": np.array(["2020"], "datetime64[Y]"),
    "objects": np.array([None], object),
    "records": np.zeros(1, [("a", "i4")]),
    "long doubles": np.zeros(1, np.longdouble),
    "masked": np.ma.array([1.0], mask=[True]),
}


@pytest.mark.parametrize("array", others.values(), ids=others)
def test_an_array_that_torch_has_no_place_for_is_left(array):
    assert move([array], "cpu")[0] is array


def test_a_defaultdict_keeps_its_default():
    moved = move(collections.defaultdict(list, x=torch.ones(2)), "meta")
    assert moved["missing"] == []
    assert moved["x"].device.type == "meta"


def test_a_dict_is_copied_without_its_constructor():
    moved = move(Named(torch.ones(2)), "meta")
    assert type(moved) is Named
    assert moved["name"].device.type == "meta"


@dataclass
class Derived:
    given: torch.Tensor
    flag: InitVar[bool]
    derived: torch.Tensor = field(init=False)

    def __post_init__(self, flag):
        self.derived = self.given * 2


def test_a_dataclass_is_copied_without_its_constructor():
    batch = Derived(torch.ones(2), True)
    batch.derived += 5
    batch.extra = "kept"
    moved = move(batch, "cpu")
    assert moved is not batch
    assert moved.derived.tolist() == [7, 7]
    assert moved.extra == "kept"
    assert move(Checked.of(torch.ones(1)), "meta").content.device.type == "meta"
    assert move(Sealed(torch.ones(1)), "meta").content.device.type == "meta"


def test_tuple_types_of_c_and_sizes_stay():
    assert move(torch.Size([2, 3]), "meta") == torch.Size([2, 3])
    moved = move(torch.ones(2, 3).max(dim=1), "meta")
    assert type(moved) is torch.return_types.max
    assert moved.values.device.type == "meta"


def test_a_batch_may_be_one_tensor_or_nothing():
    assert move(torch.ones(1), "meta").device.type == "meta"
    assert move(None, "meta") is None
    assert move(Box, "meta") is Box
    assert move(Pair(1, 2), "meta") == Pair(1, 2)
