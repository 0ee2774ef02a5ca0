"""Tensors, memory-mapped files and arrays with gaps take no room in the pickle, and come back as they were."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.travel.payload import pack, unpack
from tests.unit.batch.samples import Box, examples, same

COUNT = 100_000


def _travelled(value, to="worker"):
    """The value again, what its pickle weighed, and all of the file."""
    packed = pack(value, to)
    room = os.fstat(packed.fd).st_blocks * 512
    return unpack(packed.fd), packed.stream_nbytes, room


dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.float8_e5m2, torch.uint16])
shapes = st.lists(st.integers(0, 40), max_size=4)


@examples
@given(dtypes, shapes, st.data())
def test_a_tensor_of_any_kind_and_any_view_of_it_arrive(dtype, shape, data):
    tensor = torch.arange(int(np.prod(shape))).reshape(shape).to(dtype)
    order = data.draw(st.permutations(range(tensor.ndim)))
    view = tensor.permute(order)[tuple(slice(0, None, data.draw(st.integers(1, 3))) for _ in order)]
    again, _, _ = _travelled([tensor, view, view.unsqueeze(0).expand(3, *view.shape)])
    for one, other in zip(again, [tensor, view, view.unsqueeze(0).expand(3, *view.shape)], strict=True):
        assert one.stride() == other.stride()
        assert same(*(each.clone(memory_format=torch.contiguous_format) for each in (one, other)))


def test_tensors_that_look_at_the_same_memory_do_so_afterwards_and_it_is_there_once():
    whole = torch.arange(COUNT)
    (again, part, row, again_too), stream, room = _travelled([whole, whole[10:], whole.view(100, -1)[3], whole])
    assert stream < 2000
    assert COUNT * 8 < room < COUNT * 8 + 20_000
    again[3010] = -1
    assert (part[3000], row[10], again_too is again) == (-1, -1, True)
    assert whole[3010] == 3010


def test_what_no_tensor_looks_at_takes_no_room():
    whole = torch.ones(100 * COUNT, dtype=torch.uint8)
    (part, other), _, room = _travelled([whole[5 * COUNT : 6 * COUNT], whole[6 * COUNT : 7 * COUNT]])
    assert (part.sum(), other.sum()) == (COUNT, COUNT)
    assert room < 3 * COUNT


def test_a_tensor_that_has_come_may_be_written_to_and_nobody_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        large, small, none = _travelled([torch.zeros(COUNT), torch.zeros(2), torch.zeros(0, 4)])[0]
    large += 1
    small += 1
    assert (large.sum(), small.sum(), tuple(none.shape)) == (COUNT, 2, (0, 4))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, requires_grad=True), lambda: torch.nn.Parameter(torch.arange(9.0).view(3, 3).T),
        lambda: torch.eye(3).to_sparse(), lambda: torch.ones(3, dtype=torch.complex64).conj(),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), lambda: torch.ones(2, device="meta"),
        lambda: torch.nn.Linear(2, 2).weight,
    ],
)  # fmt: skip
def test_rare_tensors_travel_as_torch_has_them_travel(make):
    tensor = make()
    again = _travelled(tensor)[0]
    assert (type(again), again.requires_grad, again.layout) == (type(tensor), tensor.requires_grad, tensor.layout)
    assert str(again) == str(tensor)


def test_a_tensor_in_shared_memory_is_shared_with_the_trainer():
    epoch = torch.zeros(3, dtype=torch.int64).share_memory_()
    again, part = _travelled([epoch, epoch[1:]])[0]
    epoch[2] = 7
    again[0] = 5
    assert (again.tolist(), part.tolist(), epoch.tolist()) == ([5, 0, 7], [0, 7], [5, 0, 7])
    kept = _travelled(epoch, "disk")[0]
    epoch.zero_()
    assert kept.tolist() == [5, 0, 7]  # for whoever comes when it has gone


@pytest.fixture
def tokens(tmp_path):
    """A file of numbers, and its path: sparse, and larger than memory could be."""
    path = tmp_path / "tokens.bin"
    array = np.memmap(path, np.uint16, "w+", 100, (1 << 36,))
    array[:1000] = np.arange(1000)
    array[-1] = 9
    del array
    return path


views = {
    "the whole": lambda m: m,
    "a part": lambda m: m[5:-3],
    "every other": lambda m: m[10 : 1 << 30 : 2],
    "backwards": lambda m: m[1 << 25 :: -1],
    "an array": np.asarray,
    "a matrix": lambda m: m[: 1 << 30].reshape(1 << 10, -1).T,
}


@pytest.mark.parametrize("view", views.values(), ids=views)
def test_a_mapped_file_is_mapped_again_and_nothing_of_it_is_read(view, tokens):
    array = view(np.memmap(tokens, np.uint16, "r", 100))
    again, stream, room = _travelled(Box(array))
    assert stream + room < 20_000
    assert type(again.content) is type(array)
    assert (again.content.shape, again.content.strides, again.content.dtype) == (
        array.shape,
        array.strides,
        array.dtype,
    )
    assert not again.content.flags.writeable
    assert [again.content.item(place) for place in (0, 1, -1)] == [array.item(place) for place in (0, 1, -1)]
    if type(array) is np.memmap:
        assert (again.content.filename, again.content.mode) == (str(tokens), "r")
        assert again.content.offset == 100


def test_many_parts_of_a_mapped_file_need_one_mapping(tokens):
    array = np.memmap(tokens, np.uint16, "r", 100)
    before = len(os.listdir("/proc/self/fd"))
    again, _, room = _travelled([array[start : start + COUNT] for start in range(0, 2000 * COUNT, COUNT)])
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert room < 1 << 20
    assert all(part[0] == 0 for part in again[1:])


def test_a_tensor_of_a_mapped_file_is_mapped_again(tokens):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it may not be written to
        tensor = torch.from_numpy(np.memmap(tokens, np.uint16, "r", 100))
    again, stream, room = _travelled(tensor[3:])
    assert stream + room < 20_000
    assert again[:3].tolist() == [3, 4, 5]
    again[0] = 1  # for itself alone
    assert tensor[3] == 3


def test_a_mapped_file_that_is_written_to_is_written_to(tmp_path):
    array = np.memmap(tmp_path / "a", np.float32, "w+", shape=(COUNT,))
    again = _travelled(array)[0]
    again[5] = 6
    assert array[5] == 6
    assert (again.mode, again.filename) == ("r+", str(tmp_path / "a"))


@pytest.mark.parametrize("how", ["copied on write", "removed", "replaced"])
def test_a_mapped_file_that_others_would_not_see_so_is_sent(how, tmp_path):
    path = Path(tmp_path, "a")
    path.write_bytes(bytes(COUNT))
    array = np.memmap(path, np.uint8, "c" if how == "copied on write" else "r+")
    array[3] = 4
    if how == "removed":
        path.unlink()
    if how == "replaced":
        (tmp_path / "b").write_bytes(bytes(COUNT))
        (tmp_path / "b").rename(path)
    again, stream, room = _travelled(Box(array))
    assert type(again.content) is np.ndarray
    assert again.content[3] == 4
    assert stream < 2000
    assert room > COUNT


def test_small_parts_of_a_mapped_file_are_sent_as_arrays(tokens):
    again = _travelled(np.memmap(tokens, np.uint16, "r", 100)[3:5])[0]
    assert type(again) is np.ndarray
    assert again.tolist() == [3, 4]


gaps = {
    "columns": lambda a: a[:, :20],
    "every other row": lambda a: a[::2],
    "backwards": lambda a: a[::-1],
    "turned": lambda a: a.reshape(10, 50, -1).transpose(0, 2, 1),
    "a broadcast one": lambda a: np.broadcast_to(a[0], (500, 5, 400)),
    "of records": lambda a: a.view("i8,i4,i4")[:, 5:60]["f1"],
}


@pytest.mark.parametrize("view", gaps.values(), ids=gaps)
def test_an_array_with_gaps_lies_beside_the_pickle_too(view):
    array = view(np.arange(500 * 400, dtype=np.int64).reshape(500, 400))
    again, stream, room = _travelled([array, array[:0]])
    assert same(again[0], array)
    assert again[1].shape == array[:0].shape
    assert stream < 2000
    assert room < array.nbytes + 20_000
    again[0][:] = 0  # by whoever has it alone
    assert array.any()


def test_an_empty_array_beside_code_of_ones_own_arrives():
    boxes, function = _travelled([[np.zeros((0, 4)), np.zeros((0, 4)), np.ones((2, 4))], lambda x: x])[0]
    assert [box.shape for box in boxes] == [(0, 4), (0, 4), (2, 4)]
    assert function(3) == 3
