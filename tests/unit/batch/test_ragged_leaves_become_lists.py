"""With ``ragged="list"``, a leaf whose shapes differ comes as a list of tensors; its dtype must stay the same."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.misfit import Misfit
from tests.unit.batch.samples import collated, examples, landed, same, written

shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64])


def _tensors(dtype, shapes):
    return [torch.full(shape, i + 1).to(dtype) for i, shape in enumerate(shapes)]


@examples
@given(dtypes, st.lists(shapes, min_size=1, max_size=5))
def test_shapes_may_differ(dtype, shapes):
    tensors = _tensors(dtype, shapes)
    batch = collated([(tensor, i) for i, tensor in enumerate(tensors)], ragged=True)
    alike = len(set(shapes)) == 1
    assert same(batch[0], torch.stack(tensors) if alike else tensors)
    assert batch[1].tolist() == list(range(len(tensors)))


@examples
@given(st.lists(st.lists(shapes, min_size=1, max_size=3), min_size=1, max_size=4))
def test_one_ragged_batch_leaves_nothing_behind_for_the_next(batches):
    spec = spec_of(torch.ones(2), 3)
    memory = np.zeros(max(spec.nbytes, 1), np.uint8)
    writer = RowWriter(spec, memory, ragged=True)
    for shapes in batches:
        tensors = _tensors(torch.float32, shapes)
        if writer.fits(tensors[0]):
            assert same(landed(*written(writer, tensors), memory, len(tensors)), collated(tensors, ragged=True))


@pytest.mark.parametrize("numbers", [[1, 2], [1.5, 2.5], [1, 2.5], [1.5, 2], [1, 2.5, 3]], ids=str)
def test_numbers_before_an_array_are_kept(numbers):
    dtype = np.int64 if all(type(number) is int for number in numbers) else np.float64
    batch = collated([*numbers, np.array([4, 5], dtype), np.array(6, dtype)], ragged=True)
    assert [one.tolist() for one in batch] == [*numbers, [4, 5], 6]
    assert {one.dtype for one in batch} == {torch.from_numpy(np.zeros(1, dtype)).dtype}


@pytest.mark.parametrize(
    "later",
    [np.ones(3), np.ones(3, np.int32), torch.ones(3, dtype=torch.bfloat16), "text", None, 1, [1], np.ma.ones(3)],
    ids=repr,
)
@pytest.mark.parametrize("before", [1, 2, 3])
def test_another_dtype_is_a_misfit_all_the_same(later, before):
    samples = [np.ones(n + 1 if before > 1 else 1, np.float32) for n in range(before)]
    with pytest.raises(Misfit) as caught:
        collated([*samples, later], ragged=True)
    assert caught.value.row == before
    assert "float32" in caught.value.expected


def test_the_lists_hold_copies():
    buffer = np.zeros(3, np.float32)

    def samples():
        for n in (1, 2, 3):
            buffer[:] = n
            yield buffer[:n]

    spec = spec_of(buffer[:1], 3)
    memory = np.zeros(spec.nbytes, np.uint8)
    batch = landed(*written(RowWriter(spec, memory, ragged=True), samples()), memory, 3)
    assert [one.tolist() for one in batch] == [[1], [2, 2], [3, 3, 3]]


def test_without_it_shapes_that_differ_are_a_misfit():
    with pytest.raises(Misfit, match=r"\(2,\)"):
        collated([torch.ones(2), torch.ones(3)])


def test_what_was_promoted_may_become_a_list():
    leaves = [np.ones(2, np.float32), np.full(2, 0.1), np.full(3, 0.2), np.full((), 0.3)]
    for first in range(2):
        batch = collated(leaves[first:], ragged=True)
        assert [one.tolist() for one in batch] == [leaf.tolist() for leaf in leaves[first:]]
        assert {one.dtype for one in batch} == {torch.float64}
    with pytest.raises(Misfit) as caught:
        collated([leaves[0], np.ones(3), leaves[1]], ragged=True)
    assert caught.value.differs_in == "dtype and shape"
