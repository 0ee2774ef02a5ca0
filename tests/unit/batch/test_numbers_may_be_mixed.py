"""Numbers of one leaf in several dtypes become what torch promotes them to; nothing is rounded or cut off unseen."""

import enum
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.misfit import Misfit, Rounded
from swift_loader.batch.promote import promoted
from tests.slow import slow_but
from tests.unit.batch.samples import collated, examples, landed, same, written

ints = st.integers(-(1 << 53), 1 << 53)
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
        ([True, 2], torch.int64),
        ([2, True], torch.int64),
        ([True, 0.5], torch.float64),
        ([0.5, True], torch.float64),
        ([1, 1j], torch.complex128),
        ([1j, 0.5], torch.complex128),
        ([1, np.int32(2)], torch.int64),
        ([np.int32(1), 2], torch.int64),
        ([1, np.float64(1.5)], torch.float64),
        ([1.5, np.int64(1)], torch.float64),
        ([0.1, np.float32(0.5)], torch.float64),
        ([np.float32(0.5), 0.1], torch.float64),
        ([np.float32(0.5), 2], torch.float32),
        ([2, np.float16(0.5)], torch.float16),
        ([1, 2.5, np.int64(1)], torch.float64),
        ([np.float32(0.5), np.float64(0.1)], torch.float64),
        ([torch.tensor(3), torch.tensor(0.5)], torch.float32),
        ([torch.tensor(0.5, dtype=torch.bfloat16), 3], torch.bfloat16),
    ],
)
def test_numbers_of_all_kinds_go_together(values, dtype):
    plain = [value.item() if hasattr(value, "item") else value for value in values]
    assert same(collated(values), torch.tensor(plain, dtype=dtype))


WIDE = ("uint16", "uint32", "uint64")
NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", *WIDE, "float16", "bfloat16", "float32", "float64",
         "complex64", "complex128", "float8_e5m2")  # fmt: skip


#: Each pair once, and the other way round where there is time.
PAIRS = slow_but(itertools.product(NAMES, NAMES), set(itertools.combinations_with_replacement(NAMES, 2)).__contains__)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_dtypes_are_promoted_as_torch_does(one, other):
    first, later = (torch.ones(2, 3).to(getattr(torch, name)) for name in (one, other))
    try:
        expected = torch.stack([first, first, later])
    except RuntimeError:
        assert promoted(one, other) is None
        with pytest.raises(Misfit) as caught:
            collated([first, first, later])
        assert (caught.value.row, caught.value.differs_in) == (2, "dtype")
    else:
        assert str(expected.dtype) == f"torch.{promoted(one, other)}"
        assert same(collated([first, first, later]), expected)


def test_a_column_may_turn_more_than_once():
    leaves = [np.uint8(250), np.int8(-3), 70_000, np.float32(0.5), np.float64(0.1), 1j, True]
    assert collated(leaves).tolist() == [250, -3, 70_000, 0.5, 0.1, 1j, 1]
    assert collated(leaves[:-2]).dtype == torch.float64


@pytest.mark.parametrize(
    ("values", "row", "value", "dtype"),
    [
        ([0.5, (1 << 53) + 1], 1, (1 << 53) + 1, "float64"),
        ([(1 << 53) + 1, 0.5], 0, (1 << 53) + 1, "float64"),
        ([1, -(1 << 53) - 1, 2, 0.5], 1, -(1 << 53) - 1, "float64"),
        ([np.float32(0.5), (1 << 24) + 1], 1, (1 << 24) + 1, "float32"),
        ([np.array([3, (1 << 24) + 1]), np.zeros(2, np.float32)], 0, (1 << 24) + 1, "float32"),
        ([np.float16(0.5), 65_536], 1, 65_536, "float16"),
        ([np.float16(0.5), 2049], 1, 2049, "float16"),
        ([torch.ones(2, dtype=torch.bfloat16), np.array([256, 257])], 1, 257, "bfloat16"),
        ([np.array([-257, 3]), torch.ones(2, dtype=torch.bfloat16)], 0, -257, "bfloat16"),
        ([np.uint64((1 << 64) - 1), 0.5], 0, (1 << 64) - 1, "float64"),
        ([1j, (1 << 53) + 1], 1, (1 << 53) + 1, "complex128"),
        ([(1 << 63) - 1, 0.5], 0, (1 << 63) - 1, "float64"),
    ],
)
def test_an_integer_is_never_rounded(values, row, value, dtype):
    with pytest.raises(Rounded) as caught:
        collated(values)
    error = caught.value
    assert (error.path, error.row, error.value, error.dtype) == ("sample", row, value, dtype)


@pytest.mark.parametrize("value", [-(1 << 63), 1 << 60, (1 << 53) - 1, -(1 << 53), (1 << 62) + (1 << 40), 0, 1])
@pytest.mark.parametrize("other", [0.5, np.float32(0.5), torch.tensor(0.5, dtype=torch.bfloat16)], ids=repr)
def test_an_integer_that_fits_is_kept(value, other):
    digits = {"float": 53, "float32": 24, "Tensor": 8}[type(other).__name__]
    odd = abs(value) // max(abs(value) & -abs(value), 1)
    for values in ([value, other], [other, value]):
        if odd < 1 << digits:
            assert {int(one) for one in collated(values).to(torch.float64)} == {value, 0}
        else:
            with pytest.raises(Rounded):
                collated(values)


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
