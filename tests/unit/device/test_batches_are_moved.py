"""Moving a batch of any make: tensors and arrays go to the device, all else stays what it was."""

import collections
import datetime as dt
import types
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.tree import describe
from swift_loader.device.moving import mapped, move, moves_itself
from swift_loader.errors import DataError
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


class Words(collections.UserDict):
    """What tokenizers give: a mapping that finds its keys as attributes too, and moves itself."""

    def __getattr__(self, name):
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

    def to(self, device, *, non_blocking=False):
        self.asked = device, non_blocking
        self.data = {key: one.to(device, non_blocking=non_blocking) for key, one in self.data.items()}
        return self


class Graphs:
    """Keeps its tensors where only it knows, and takes a device and more."""

    def __init__(self, x):
        self._store = {"x": x}

    def to(self, device, *more, non_blocking=False):
        return Graphs(self._store["x"].to(device, non_blocking=non_blocking))


class Anything:
    """Takes whatever a tensor's own takes."""

    def __init__(self, x):
        self.x = x

    def to(self, *args, **kwargs):
        return Anything(self.x.to(*args, **kwargs))


class Silent:
    """Moves what it holds, and gives nothing back; does not know of `non_blocking`."""

    def __init__(self, x):
        self.x = x

    def to(self, device):
        self.x = self.x.to(device)


@dataclass
class Instances:
    boxes: torch.Tensor
    lengths: torch.Tensor

    def to(self, device, **kwargs):
        return Instances(self.boxes.to(device, **kwargs), self.lengths)


class Points(NamedTuple):
    x: torch.Tensor
    lengths: torch.Tensor

    def to(self, device, **kwargs):
        return Points(self.x.to(device, **kwargs), self.lengths)


def test_what_has_a_to_of_its_own_is_moved_by_that():
    ones = torch.ones(2)
    batch = [Words(x=ones), {"g": Graphs(ones)}, (Anything(ones), Silent(ones))]
    words, graphs, (anything, silent) = move(batch, "meta")[0], move(batch, "meta")[1]["g"], move(batch, "meta")[2]
    assert type(words) is Words
    assert words.asked == ("meta", True)
    places = [words["x"].device, graphs._store["x"].device, anything.x.device, silent.x.device]
    assert [place.type for place in places] == ["meta"] * 4


@pytest.mark.parametrize("kind", [Instances, Points])
def test_what_such_an_object_leaves_on_the_host_stays_there(kind):
    moved = move(kind(torch.ones(2), torch.ones(2)), "meta")
    assert type(moved) is kind
    assert moved.lengths.device.type == "cpu"
    assert {"meta", "cpu"} == {
        getattr(moved, name).device.type for name in ("x", "boxes", "lengths") if hasattr(moved, name)
    }


@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_the_lengths_of_packed_sequences_stay_on_the_host(enforce_sorted):
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)], enforce_sorted=enforce_sorted)
    moved = move({"x": packed}, "meta")["x"]
    assert type(moved) is type(packed)
    assert moved.data.device.type == "meta"
    assert torch.equal(moved.batch_sizes, packed.batch_sizes)
    assert (moved.sorted_indices is None) == enforce_sorted
    assert enforce_sorted or moved.unsorted_indices.device.type == "meta"


class Frozen(Mapping):
    def __init__(self, items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


containers = {
    "UserDict": collections.UserDict(x=torch.ones(2), name="a"),
    "Counter": collections.Counter(x=torch.ones(2), name="a"),
    "OrderedDict": collections.OrderedDict(x=torch.ones(2), name="a"),
    "a mapping of one's own": Frozen({"x": torch.ones(2), "name": "a"}),
}


@pytest.mark.parametrize("container", containers.values(), ids=containers)
def test_a_mapping_of_any_class_is_moved_and_keeps_its_class(container):
    moved = move(container, "meta")
    assert type(moved) is type(container)
    assert moved["x"].device.type == "meta"
    assert container["x"].device.type == "cpu"
    assert dict(moved) == {"x": moved["x"], "name": "a"}


def test_a_mapping_that_cannot_be_made_again_becomes_a_dict():
    assert move(types.MappingProxyType({"x": torch.ones(2)}), "meta")["x"].device.type == "meta"


class Tracks(list):
    """A list that must be told its name."""

    def __init__(self, items, name):
        super().__init__(items)
        self.name = name


@pytest.mark.parametrize(
    "container",
    [Tracks([torch.ones(2)], "a"), collections.deque([torch.ones(2)], 3), collections.UserList([torch.ones(2)])],
)
def test_a_sequence_of_any_class_is_moved_and_keeps_its_class(container):
    moved = move(container, "meta")
    assert type(moved) is type(container)
    assert moved[0].device.type == "meta"
    assert container[0].device.type == "cpu"
    assert vars(moved) == vars(container) if isinstance(container, Tracks) else True


class When:
    """A date, whose `.to` is about time zones."""

    def to(self, tz):
        raise AssertionError("nobody should ask for another time zone")


class Letter:
    """It goes to somebody; nobody can be named."""

    def to(self):
        raise AssertionError("nobody should ask")


@dataclass
class Mail:
    to: str = "a"


@pytest.mark.parametrize("value", [When(), Letter(), Mail(), dt.timedelta(1), "to", Words, torch.Size([1])], ids=type)
def test_a_to_that_is_something_else_is_not_asked(value):
    assert not moves_itself(value)
    assert move([value], "meta")[0] == value


class Stubborn:
    def to(self, device):
        raise ValueError("I stay here")


def test_a_to_that_raises_is_told_with_its_class_and_what_to_do():
    with pytest.raises(DataError, match=r"a tests\.\S+\.Stubborn in the batch .* did not move it to meta") as caught:
        move({"x": Stubborn()}, "meta")
    assert "ValueError: I stay here" in str(caught.value)
    assert "to_device=" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_too_little_memory_on_the_device_is_told_as_it_is():
    class Large:
        def to(self, device):
            raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        move(Large(), "meta")


def test_where_nobody_moves_them_such_objects_are_containers_like_others():
    pinned = mapped([Words(x=torch.ones(2)), Graphs(torch.ones(2))], lambda tensor: tensor + 1)
    assert torch.equal(pinned[0]["x"], torch.full((2,), 2.0))
    assert torch.equal(pinned[1]._store["x"], torch.ones(2))
