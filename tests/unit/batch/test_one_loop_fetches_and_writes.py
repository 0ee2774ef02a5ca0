"""`fill` writes what `write` writes, and leaves to it whatever is not plain."""

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.rowcode import Watch
from tests.unit.batch.samples import examples

ODD = {
    "another shape": (np.zeros((3, 3), np.float32), 1),
    "another dtype": (np.zeros((2, 3)), 1),
    "a subclass": (np.ma.masked_array(np.zeros((2, 3), np.float32)), 1),
    "a float for an int": (np.zeros((2, 3), np.float32), 1.0),
    "an int too large": (np.zeros((2, 3), np.float32), 1 << 63),
    "a list": [np.zeros((2, 3), np.float32), 1],
    "one more": (np.zeros((2, 3), np.float32), 1, 2),
}


class Seen(Exception):
    def __init__(self, error, index):
        self.error, self.index = error, index


def _plain(index):
    return np.full((2, 3), index, np.float32), index


def _watch(**changes):
    words = memoryview(mmap.mmap(-1, 4096)).cast("q")
    return Watch(
        **{"word": words[:1], "seq": 0, "cell": words[8:], "place": 2, "failed": Seen, "looks": True, **changes}
    )


def _writer(capacity=8):
    spec = spec_of(_plain(0), capacity)
    memory = np.full(spec.nbytes, 0xAB, np.uint8)
    return RowWriter(spec, memory, ragged=False), memory


@examples
@given(st.lists(st.integers(0, 99), min_size=1, max_size=8))
def test_it_writes_the_same_bytes(indices):
    samples = [_plain(index) for index in range(100)]
    (writer, expected), (filler, memory) = _writer(), _writer()
    for row, index in enumerate(indices):
        writer.write(row, samples[index])
    watch = _watch()
    assert filler.fill(samples, indices, watch) == len(indices)
    assert memory.tobytes() == expected.tobytes()
    assert not watch.odd
    assert watch.cell[2] == indices[-1]
    assert watch.slowest_index in indices


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("at", [0, 2, 3])
def test_it_stops_at_a_sample_that_is_not_plain_and_writes_nothing_of_it(odd, at):
    samples = [_plain(index) for index in range(4)]
    samples[at] = odd
    (writer, expected), (filler, memory) = _writer(), _writer()
    for row in range(at):
        writer.write(row, samples[row])
    watch = _watch()
    assert filler.fill(samples, [0, 1, 2, 3], watch) == at
    (found,) = watch.odd
    assert found is odd
    assert memory.tobytes() == expected.tobytes()


def test_there_is_none_where_a_leaf_is_an_object():
    spec = spec_of((1, "name"), 2)
    assert RowWriter(spec, np.zeros(spec.nbytes, np.uint8), ragged=False).fill is None


def test_an_error_of_the_dataset_says_which_sample_it_was():
    writer, _ = _writer()
    with pytest.raises(Seen) as caught:
        writer.fill([_plain(0), _plain(1)], [0, 1, 7], _watch())
    assert isinstance(caught.value.error, IndexError)
    assert caught.value.index == 7


def test_it_stops_before_the_next_sample_once_the_batch_is_not_wanted():
    writer, _ = _writer()
    watch = _watch()

    class Cancels(list):
        def __getitem__(self, index):
            watch.word[0] = index
            return super().__getitem__(index)

    with pytest.raises(Seen) as caught:
        writer.fill(Cancels(map(_plain, range(4))), [0, 1, 2], watch)
    assert caught.value.error is None
    assert caught.value.index == 2


class Tardy(list):
    """Two samples are slow, by a clock of their own: it stands still while others are."""

    now = 0.0

    def __getitem__(self, index):
        self.now += {2: 0.02, 6: 0.01}.get(index, 0.0)
        return super().__getitem__(index)


@pytest.mark.parametrize("looks", [True, False])
def test_fetching_is_timed_and_the_slowest_sample_found_where_it_is_looked_for(looks, monkeypatch):
    samples = Tardy(map(_plain, range(8)))
    (writer, expected), (filler, memory) = _writer(), _writer()
    monkeypatch.setitem(filler.fill.__globals__, "clock", lambda: samples.now)
    for row in range(8):
        writer.write(row, samples[row])
    watch = _watch(looks=looks)
    assert filler.fill(samples, list(range(8)), watch) == 8
    assert memory.tobytes() == expected.tobytes()
    assert watch.slowest_index == (2 if looks else -1)
    assert (watch.slowest_ns, watch.fetch_ns) == (pytest.approx((20e6, 30e6)) if looks else (0, 0))


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("at", [0, 2, 4, 5])
def test_it_stops_at_an_odd_sample_whether_it_looks_or_not(looks, at):
    samples = [_plain(index) for index in range(6)]
    samples[at] = "odd"
    writer, _ = _writer()
    watch = _watch(looks=looks)
    assert writer.fill(samples, list(range(6)), watch) == at
    assert watch.odd == ("odd",)


def test_what_was_written_for_one_memory_serves_another():
    (one, memory), (other, elsewhere) = _writer(), _writer()
    assert one.fill.__code__ is other.fill.__code__
    one.write(0, _plain(3))
    assert other.fill([_plain(5)], [0], _watch()) == 1
    assert (memory[:4].view(np.float32)[0], elsewhere[:4].view(np.float32)[0]) == (3, 5)


def test_it_begins_only_with_a_sample_whose_keys_come_in_the_layouts_order():
    def sample(*names):
        return {name: {"x": 1, "y": 2} for name in names}

    spec = spec_of(sample("a", "b"), 4)
    memory = np.zeros(spec.nbytes, np.uint8)
    writer = RowWriter(spec, memory, ragged=False)
    assert writer.fill([sample("a", "b"), sample("b", "a")], [0, 1], _watch()) == 2
    assert writer.fill([sample("b", "a"), sample("a", "b")], [0, 1], _watch()) == 0
    inner = {"a": {"y": 2, "x": 1}, "b": {"x": 1, "y": 2}}
    assert writer.fill([inner], [0], _watch()) == 0
    assert not writer.fits(inner)
    assert writer.fits(sample("a", "b"))
