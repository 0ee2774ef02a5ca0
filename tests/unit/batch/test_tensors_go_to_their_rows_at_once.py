"""Both ways of writing give what torch's collate gives, whatever a tensor is like and whoever fills its memory next."""

import mmap
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.misfit import Misfit, Rounded
from swift_loader.batch.rowcode import Watch
from tests.unit.batch.samples import collated, examples, landed, same

ROWS = 6


def _drawn(index, *shape, dtype=torch.float32):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
    return (numbers * 50).to(dtype)


def _of(dtype):
    return lambda index: _drawn(index, 3, 4).abs().to(dtype)


#: What is stored as it is, though it differs in how it lies in memory.
PLAIN = {
    **{str(dtype): _of(dtype) for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
        torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
        torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
    )},
    "a float4": lambda i: _of(torch.uint8)(i).view(torch.float4_e2m1fn_x2),
    "transposed": lambda i: _drawn(i, 4, 3).t(),
    "every second": lambda i: _drawn(i, 8)[::2],
    "expanded": lambda i: _drawn(i, 1, 3).expand(4, 3),
    "channels last": lambda i: _drawn(i, 5, 6, 3).permute(2, 0, 1),
    "transposed bfloat16": lambda i: _drawn(i, 4, 3, dtype=torch.bfloat16).t(),
    "conjugate": lambda i: torch.complex(_drawn(i, 4), _drawn(i + 9, 4)).conj(),
    "conjugate, transposed": lambda i: torch.complex(_drawn(i, 4, 2), _drawn(i + 9, 4, 2)).mH,
    "negated": lambda i: torch.complex(_drawn(i, 4), _drawn(i + 9, 4)).conj().imag,
    "negated, one number": lambda i: torch.complex(_drawn(i, 1), _drawn(i + 9, 1)).conj().imag,
    "negated, no dimension": lambda i: torch.complex(_drawn(i), _drawn(i + 9)).conj().imag,
    "negated double, no dimension": lambda i: torch.complex(_drawn(i), _drawn(i + 9)).to(torch.cdouble).conj().imag,
    "conjugate, no dimension": lambda i: torch.complex(_drawn(i), _drawn(i + 9)).conj(),
    "an int": lambda i: torch.tensor(i - (1 << 62)),
    "a bool": lambda i: torch.tensor(i % 2 == 0),
    "a double": lambda i: _drawn(i, dtype=torch.float64),
    "a float": _drawn,
    "a bfloat16": lambda i: _drawn(i, dtype=torch.bfloat16),
    "an int32": lambda i: torch.tensor(i, dtype=torch.int32),
    "from numpy": lambda i: torch.from_numpy(np.full((2, 3), i, np.int32)),
    "above 64 kB": lambda i: _drawn(i, 130, 130),
    "above 64 kB, transposed": lambda i: _drawn(i, 140, 130).t(),
    "a part of something": lambda i: _drawn(i, 10, 5)[3:7, 1:4],
}  # fmt: skip
#: What goes the slow way.
ODD = {
    "a parameter": lambda i: torch.nn.Parameter(_drawn(i, 3)),
    "no elements": lambda _: torch.empty(0, 4),
}
GRADED = {
    "a leaf": lambda i: _drawn(i, 3).requires_grad_(),
    "a result": lambda i: _drawn(i, 3).requires_grad_() * 2,
    "transposed": lambda i: _drawn(i, 2, 3).requires_grad_().t(),
    "no dimension": lambda i: _drawn(i, dtype=torch.float64).requires_grad_(),
}


def _watch():
    words = memoryview(mmap.mmap(-1, 4096)).cast("q")
    return Watch(words[:1], 0, words[8:], 2, None, True, (Exception,))


def _writer(first, capacity=ROWS):
    spec = spec_of(first, capacity)
    memory = np.full(spec.nbytes, 0xAB, np.uint8)
    return RowWriter(spec, memory, ragged=False), memory


def _batch(samples, count=ROWS, *, quickly):
    """The batch as landed, and how many of its samples were stored as they are."""
    writer, memory = _writer(samples[0])
    writer.begin()
    watch = _watch()
    filled = writer.fill(samples, list(range(count)), watch) if quickly and writer.fill else 0
    for row in range(filled, count):
        writer.write(row, watch.odd[0] if row == filled and watch.odd else samples[row])
    return landed(*writer.finish(), memory, count), filled


class Made:
    """Samples made when they are asked for."""

    def __init__(self, make):
        self.make = make

    def __getitem__(self, index):
        return self.make(index)


both_ways = pytest.mark.parametrize("quickly", [True, False], ids=["filled", "written"])


@both_ways
@pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN)
def test_a_tensor_of_any_make_is_stored_as_it_is(make, quickly):
    batch, filled = _batch(Made(make), quickly=quickly)
    assert same(batch, default_collate([make(i) for i in range(ROWS)]))
    assert filled == (ROWS if quickly else 0)


@both_ways
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_what_is_no_plain_tensor_is_stored_too(make, quickly):
    batch, filled = _batch(Made(make), quickly=quickly)
    assert same(batch, torch.stack([make(i).detach() for i in range(ROWS)]))
    assert filled == 0


@both_ways
@pytest.mark.parametrize("make", GRADED.values(), ids=GRADED)
def test_a_batch_needs_no_gradient(make, quickly):
    batch, filled = _batch(Made(make), quickly=quickly)
    assert same(batch, torch.stack([make(i) for i in range(ROWS)]).detach())
    assert not batch.requires_grad
    assert filled == (ROWS if quickly else 0)


numbers = st.sampled_from([lambda i: i, lambda i: i / 3, lambda i: i % 2 == 0])
arrays = st.sampled_from([
    lambda i: np.full((2, 3), i, np.float32), np.float32, np.int64, lambda i: np.bool_(i % 2),
    lambda i: np.asfortranarray(np.full((2, 3), i)), lambda i: np.array(i, np.uint8),
])  # fmt: skip
leaves = st.one_of(st.sampled_from(sorted(PLAIN)).map(PLAIN.get), numbers, arrays)


@examples
@given(st.lists(leaves, min_size=1, max_size=5), st.sampled_from(["tuple", "list", "dict", "nested"]), st.booleans())
def test_any_mix_of_leaves_is_collated_as_by_torch(makes, kind, quickly):
    def sample(index):
        parts = [make(index) for make in makes]
        named = {f"part {at}": part for at, part in enumerate(parts)}
        return {"tuple": tuple(parts), "list": parts, "dict": named, "nested": {"a": parts, "b": (named,)}}[kind]

    batch, filled = _batch(Made(sample), quickly=quickly)
    expected = default_collate([sample(i) for i in range(ROWS)])
    assert same(_listed(batch), _listed(expected))
    assert filled == (ROWS if quickly else 0)


def _listed(batch):
    """torch gives lists where tuples were."""
    if isinstance(batch, dict):
        return {key: _listed(value) for key, value in batch.items()}
    return [_listed(value) for value in batch] if isinstance(batch, list | tuple) else batch


class Refills:
    """Returns the same tensor each time, filled anew."""

    def __init__(self, shape=(4,), places=1):
        self.numbers = torch.zeros(places, *shape)
        self.places = places

    def view(self, index):
        self.numbers[index % self.places] = index
        return self.numbers[index % self.places]


class SameTensor(Refills):
    def __getitem__(self, index):
        return self.numbers.fill_(index)


class SameMemory(Refills):
    """A new tensor each time, on the same memory."""

    def __getitem__(self, index):
        return self.view(index)


class SameArray(Refills):
    """torch does not see that numpy writes to it."""

    def __getitem__(self, index):
        self.numbers.numpy()[:] = index
        return torch.from_numpy(self.numbers.numpy())[0]


class Rotates(SameMemory):
    """Each place of a few comes again after some samples."""

    def __init__(self, **keywords):
        super().__init__(places=3, **keywords)


class Spoils(Refills):
    """What was returned is spoilt when the next sample is asked for."""

    last = None

    def __getitem__(self, index):
        if self.last is not None:
            self.last.fill_(-1)
        self.last = torch.full_like(self.numbers[0], index)
        return self.last


class NoDimension(Refills):
    def __getitem__(self, index):
        return self.numbers.fill_(index)[0, 0].double(), self.numbers[0, 0]


@both_ways
@pytest.mark.parametrize("shape", [(4,), (130, 130)], ids=["small", "large"])
@pytest.mark.parametrize("kind", [SameTensor, SameMemory, SameArray, Rotates, Spoils, NoDimension])
def test_memory_that_is_filled_anew_for_a_later_sample_is_no_danger(kind, shape, quickly):
    batch, filled = _batch(kind(shape=shape), quickly=quickly)
    for leaf in batch if isinstance(batch, tuple) else [batch]:
        assert leaf.reshape(ROWS, -1).eq(torch.arange(ROWS)[:, None]).all()
    assert filled == (ROWS if quickly else 0)


OTHERS = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(3), torch.zeros(3)]),
    "without memory": lambda: torch.empty(3, 3, device="meta"),
    "of another library": lambda: torch.eye(3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.eye(3), 1.0, 0, torch.quint8),
    "of another shape": lambda: torch.eye(4),
    "of another number of dimensions": lambda: torch.eye(3)[None],
    "bits alike": lambda: torch.eye(3).view(torch.int32) + 1,
}


@pytest.mark.filterwarnings("ignore:.*Sparse CSR|.*nested tensors is in prototype|.*quantize|.*deprecated")
@pytest.mark.parametrize("at", [1, 3])
@both_ways
@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_a_tensor_unlike_the_first_is_refused_and_nothing_of_it_is_written(make, at, quickly):
    samples = [(torch.full((2,), i), torch.full((3, 3), float(i))) for i in range(ROWS)]
    samples[at] = samples[at][0], make()
    writer, memory = _writer(samples[0])
    watch = _watch()
    row = writer.fill(samples, list(range(ROWS)), watch) if quickly else 0
    assert row == (at if quickly else 0)
    untouched = memory.copy()
    for early in range(row, at):
        writer.write(early, samples[early])
    with pytest.raises((Misfit, Rounded)) as caught:
        writer.write(at, samples[at])
    assert (caught.value.row, caught.value.path) == (at, "sample[1]")
    if quickly:
        assert [id(one) for one in watch.odd] == [id(samples[at])]
        assert memory[16 * ROWS :].tobytes() == untouched[16 * ROWS :].tobytes()


@pytest.mark.parametrize("at", range(1, ROWS))
def test_an_odd_row_in_the_middle_ends_the_quick_way_and_not_the_batch(at):
    samples = [(torch.full((2, 3), float(i)), i) for i in range(ROWS)]
    samples[at] = torch.nn.Parameter(samples[at][0]), at
    batch, filled = _batch(samples, quickly=True)
    assert filled == at
    assert same(batch, (torch.stack([sample[0].detach() for sample in samples]), torch.arange(ROWS)))


@both_ways
def test_arrays_tensors_and_numbers_may_follow_one_another_in_a_column(quickly):
    kinds = [torch.from_numpy, np.asarray, torch.from_numpy, np.asfortranarray, torch.from_numpy, np.asarray]
    numbers = [torch.tensor(0), 1, np.int64(2), torch.tensor(3), 4, np.array(5)]
    rows = [np.full((2, 3), i, np.float32) for i in range(ROWS)]
    samples = [(kind(row), number) for kind, row, number in zip(kinds, rows, numbers, strict=True)]
    batch, filled = _batch(samples, quickly=quickly)
    assert same(batch, (torch.from_numpy(np.stack(rows)), torch.arange(ROWS)))
    assert filled == (5 if quickly else 0)  # an array of no dimension is no number


@pytest.mark.parametrize("odd", [np.ones(3, np.int16), torch.ones(3, dtype=torch.int16)], ids=["array", "tensor"])
def test_integers_are_not_the_bits_of_what_numpy_lacks(odd):
    """They are promoted, by their values."""
    samples = [torch.ones(3, dtype=torch.bfloat16), odd]
    writer, _ = _writer(samples[0])
    assert writer.fill(samples, [0, 1], _watch()) == 1
    assert same(collated(samples), torch.ones(2, 3, dtype=torch.bfloat16))


def test_where_torch_was_not_loaded_a_tensor_that_comes_later_goes_the_slow_way(monkeypatch):
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "torch")
        writer, memory = _writer(np.zeros(3, np.float32), 2)
    samples = [np.ones(3, np.float32), torch.full((3,), 2.0)]
    assert writer.fill(samples, [0, 1], _watch()) == 1
    writer.write(1, samples[1])
    assert memory[:24].view(np.float32).tolist() == [1, 1, 1, 2, 2, 2]
