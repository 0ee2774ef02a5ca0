"""Python's numbers: ints and floats of one leaf become floats, as in torch's collate; nothing is cut off unseen."""

import enum
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.collate import Misfit, RowWriter, spec_of
from tests.unit.batch.samples import collated, examples, landed, same, written

ints = st.integers(-(1 << 63), (1 << 63) - 1)
numbers = st.one_of(ints, st.floats())


@examples
@given(st.lists(numbers, min_size=1, max_size=6))
def test_ints_and_floats_become_floats_and_ints_alone_stay_ints(values):
    dtype = torch.int64 if all(type(value) is int for value in values) else torch.float64
    assert same(collated(values), torch.tensor(values, dtype=dtype))


@examples
@given(st.lists(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4), min_size=1, max_size=4))
def test_what_one_batch_turned_to_does_not_stay_for_the_next(batches):
    spec = spec_of((0, 0), 4)
    memory = np.zeros(spec.nbytes, np.uint8)
    writer = RowWriter(spec, memory, ragged=False)
    for batch in batches:
        if writer.fits(batch[0]):
            got = landed(*written(writer, batch), memory, len(batch))
            assert same(got, collated(batch))


class Colour(enum.IntEnum):
    RED = 3


class Metres(float):
    pass


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([True, False], torch.bool),
        ([1 + 2j, 3 - 1j], torch.complex128),
        ([Colour.RED, 4], torch.int64),
        ([4, Colour.RED], torch.int64),
        ([Metres(1.5), 2.5], torch.float64),
        ([np.int64(1), 2], torch.int64),
        ([1, np.int64(2), 2.5], torch.float64),
        ([1.5, np.float64(2.5), 1], torch.float64),
        ([1, 2.5, np.float64(3.5)], torch.float64),
        ([torch.tensor(1), 2, np.int64(3)], torch.int64),
        ([np.float64(1.5), torch.tensor(2.5, dtype=torch.float64)], torch.float64),
        ([np.array(1), 2], torch.int64),
    ],
)
def test_numbers_of_one_width_go_together(values, dtype):
    plain = [value.item() if hasattr(value, "item") else value for value in values]
    assert same(collated(values), torch.tensor(plain, dtype=dtype))


@pytest.mark.parametrize(
    "values",
    [
        *itertools.permutations((True, 1), 2),
        *itertools.permutations((True, 1.0), 2),
        *itertools.permutations((1, 1j), 2),
        *itertools.permutations((1.0, 1j), 2),
        *itertools.permutations((1.0, np.float32(1)), 2),
        *itertools.permutations((1, np.int32(1)), 2),
        *itertools.permutations((1, np.uint64(1)), 2),
        *itertools.permutations((1, "1"), 2),
        *itertools.permutations((1.5, None), 2),
        (1, np.float64(1.5)),
        (1.5, np.int64(1)),
        (1, 2.5, np.int64(1)),
        (1, 2.5, np.float32(1)),
    ],
    ids=repr,
)
def test_other_mixtures_are_refused(values):
    with pytest.raises(Misfit) as caught:
        collated(list(values))
    assert caught.value.row == len(values) - 1
    assert caught.value.found != caught.value.expected


class Large(int):
    pass


@pytest.mark.parametrize("first", [[], [1], [1.5], [1, 1.5]], ids=str)
@pytest.mark.parametrize("huge", [10**400, 10**5000, -(10**400)], ids=lambda huge: f"{huge.bit_length()} bits")
def test_a_number_that_fits_nowhere_is_refused_without_spelling_it_out(first, huge):
    with pytest.raises(Misfit, match="bits") as caught:
        collated([*first, huge])
    assert caught.value.row == len(first)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("huge", [1 << 63, -(1 << 63) - 1, 1 << 64, Large(1 << 70)])
def test_an_int_beyond_64_bits_is_refused(huge):
    for values in ([huge], [1, huge]):
        with pytest.raises(Misfit):
            collated(values)


def test_the_largest_ints_are_kept():
    ends = [(1 << 63) - 1, -(1 << 63)]
    assert collated(ends).tolist() == ends
