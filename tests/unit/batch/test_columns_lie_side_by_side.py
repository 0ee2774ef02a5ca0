"""Where the bytes of a batch lie."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.layout import ALIGNMENT, ENCODED, OBJECT, Column, aligned, lay_out
from swift_loader.batch.tree import describe
from tests.unit.batch.samples import examples

arrays = st.integers(0, 5000).map(lambda nbytes: Column("array", "uint8", (nbytes,), row_nbytes=nbytes))
columns = st.lists(st.one_of(arrays, st.just(Column("objects"))), max_size=8).map(tuple)


def _laid_out(columns, capacity):
    return lay_out(describe([0] * len(columns)), columns, capacity)


@examples
@given(columns, st.integers(1, 100))
def test_columns_do_not_overlap_and_end_within_the_batch(columns, capacity):
    spec = _laid_out(columns, capacity)
    end = 0
    for column, offset in zip(spec.columns, spec.offsets, strict=True):
        assert offset >= end
        end = offset + column.row_nbytes * capacity
    assert end <= spec.nbytes


@examples
@given(columns, st.integers(1, 100))
def test_columns_are_aligned_and_no_room_is_wasted(columns, capacity):
    spec = _laid_out(columns, capacity)
    assert all(offset % ALIGNMENT == 0 for offset in (*spec.offsets, spec.nbytes))
    needed = sum(column.row_nbytes * capacity for column in columns)
    assert needed <= spec.nbytes < needed + ALIGNMENT * (len(columns) + 1)


@examples
@given(columns, st.integers(1, 100))
def test_equal_makes_give_equal_layouts_after_a_journey(columns, capacity):
    spec = _laid_out(columns, capacity)
    again = pickle.loads(pickle.dumps(spec, protocol=5))
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.key != spec.key


@examples
@given(columns.filter(bool), st.integers(1, 100), st.data())
def test_a_column_read_otherwise_stays_in_its_place(columns, capacity, data):
    spec = _laid_out(columns, capacity)
    position = data.draw(st.integers(0, len(columns) - 1))
    other = spec.with_column(position, Column("objects", "uint8"))
    assert (other.offsets, other.nbytes, other.capacity) == (spec.offsets, spec.nbytes, spec.capacity)
    assert other.columns[position] == Column("objects", "uint8")
    assert other.object_count == sum(column.kind == "objects" for column in other.columns)


@given(st.integers(0, 1 << 50))
def test_aligned_is_the_next_multiple(nbytes):
    assert nbytes <= aligned(nbytes) < nbytes + ALIGNMENT
    assert aligned(nbytes) % ALIGNMENT == 0


def test_the_layouts_of_foreign_batches_take_no_room_of_their_own():
    assert OBJECT.nbytes == ENCODED.nbytes == 0
    assert (OBJECT.object_count, ENCODED.object_count) == (1, 0)
