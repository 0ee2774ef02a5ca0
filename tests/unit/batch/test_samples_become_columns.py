"""The default collate gives what stacking gives, for any structure, dtype, shape and memory that samples may have."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.tree import describe
from tests.unit.batch.samples import collated, examples, is_array, landed, same, structures, written

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128")  # fmt: skip
#: Leaf makers: each is given a generator of random bits.
SHAPES = ((), (1,), (3,), (0,), (2, 3), (2, 0, 4), (1, 1, 1, 2))
NAMES = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float16",
    "int64",
    "complex64",
)
EXOTIC = [getattr(torch, name) for name in NAMES]


def _array(dtype, shape):
    """Any bits at all, so that NaNs of all sorts are among the floats."""
    dtype = np.dtype(dtype)

    def make(rng):
        data = rng.integers(0, 256, int(np.prod(shape, dtype=int)) * dtype.itemsize, dtype=np.uint8)
        if dtype.kind == "b":
            data %= 2
        return data.view(dtype).reshape(shape)

    return make


def _tensor(dtype, shape):
    def make(rng):
        data = rng.integers(0, 256, int(np.prod(shape, dtype=int)) * dtype.itemsize, dtype=np.uint8)
        return torch.from_numpy(data).view(dtype).reshape(shape) if data.size else torch.empty(shape, dtype=dtype)

    return make


makers = st.one_of(
    st.builds(_array, st.sampled_from(DTYPES), st.sampled_from(SHAPES)),
    st.builds(_tensor, st.sampled_from(EXOTIC), st.sampled_from(SHAPES)),
    st.sampled_from(
        [
            lambda rng: int(rng.integers(-(1 << 63), 1 << 63)),
            lambda rng: float(rng.standard_normal()),
            lambda rng: bool(rng.integers(0, 2)),
            lambda rng: complex(*rng.standard_normal(2)),
            lambda rng: np.float32(rng.standard_normal()),
            lambda rng: np.uint8(rng.integers(0, 256)),
            lambda rng: np.bool_(rng.integers(0, 2)),
            lambda rng: str(rng.integers(0, 99)),
            lambda rng: rng.bytes(3),
            lambda rng: None,
        ]
    ),
)


def _samples(structure_of_makers, count, seed):
    rng, structure = np.random.default_rng(seed), describe(structure_of_makers)
    makers = list(structure.leaves(structure_of_makers))
    return [structure.build(make(rng) for make in makers) for _ in range(count)]


def _stacked(leaves):
    first = leaves[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(leaves)
    if isinstance(first, np.ndarray | np.generic | bool | int | float | complex):
        return torch.from_numpy(np.stack([np.asarray(leaf) for leaf in leaves]))
    return leaves


def _expected(samples):
    structure = describe(samples[0])
    return structure.build(_stacked(list(leaves)) for leaves in zip(*map(structure.leaves, samples), strict=True))


@examples
@given(structures(makers), st.integers(1, 5), st.integers(0, 99))
def test_a_batch_is_its_samples_stacked_bit_for_bit(structure, count, seed):
    samples = _samples(structure, count, seed)
    assert same(collated(samples), _expected(samples))


@examples
@given(structures(makers), st.integers(1, 5), st.integers(0, 3), st.integers(0, 99))
def test_a_batch_may_be_smaller_than_its_layout(structure, count, spare, seed):
    samples = _samples(structure, count, seed)
    assert same(collated(samples, capacity=count + spare), _expected(samples))


@examples
@given(structures(makers), st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(0, 99))
def test_the_same_memory_takes_one_batch_after_the_other(structure, counts, seed):
    samples = _samples(structure, sum(counts), seed)
    spec = spec_of(samples[0], max(counts))
    memory = np.full(spec.nbytes, 0xAB, np.uint8)
    writer = RowWriter(spec, memory, ragged=False)
    for count in counts:
        batch, samples = samples[:count], samples[count:]
        assert writer.fits(batch[0])
        assert same(landed(*written(writer, batch), memory, count), _expected(batch))


@pytest.mark.parametrize(
    "samples",
    [
        [(np.arange(6.0).reshape(2, 3), 1), (np.ones((2, 3)), 2)],
        [{"x": torch.ones(2, dtype=torch.half), "y": 1.5}, {"x": torch.zeros(2, dtype=torch.half), "y": 2.5}],
        [1, 2, 3],
        [1.0, 2, 3],
        [True, False],
        [np.float32(1), np.float32(2)],
        ["one", "two"],
        [b"one", b"two"],
        [{"name": "a", "deep": {"n": 1}}, {"name": "b", "deep": {"n": 2}}],
    ],
)
def test_values_are_those_of_torchs_collate(samples):
    ours, theirs = collated(samples), default_collate(samples)
    structure = describe(ours)
    # Torch makes lists of tuples; nothing else may differ.
    theirs_alike = structure.build(iter(_leaves(theirs)))
    assert same(ours, theirs_alike)


def _leaves(batch):
    if isinstance(batch, dict):
        return [leaf for value in batch.values() for leaf in _leaves(value)]
    if isinstance(batch, list | tuple):
        return [leaf for value in batch for leaf in _leaves(value)]
    return [batch]


base = np.arange(24, dtype=np.int32).reshape(4, 6)
views = {
    "a transposed": base.T,
    "a strided": base[:, ::2],
    "a reversed": base[::-1, ::-1],
    "a repeated": np.broadcast_to(np.int32(7), (3, 2)),
    "a big-endian": base.astype(">i4"),
    "an unaligned": np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.int32),
    "a Fortran-ordered": np.asfortranarray(base),
    "an instance of a subclass": base.view(np.recarray),
}


@pytest.mark.parametrize("view", views.values(), ids=views)
def test_an_array_may_lie_in_its_memory_as_it_likes(view):
    batch = collated([view, view])
    assert batch.dtype == torch.int32
    assert np.array_equal(batch.numpy(), np.stack([np.asarray(view)] * 2))


@pytest.mark.parametrize("of", [1, 2])
def test_a_big_endian_array_may_come_first_or_later(of):
    little, big = np.array([1.0, 2.0]), np.array([3.0, 4.0], ">f8")
    assert collated([little, big][:: 3 - 2 * of]).sum() == 10.0


def test_arrays_may_be_read_only_or_mapped_from_a_file(tmp_path):
    np.save(tmp_path / "array.npy", base)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    frozen = base.copy()
    frozen.setflags(write=False)
    assert same(collated([mapped, frozen, base]), torch.from_numpy(np.stack([base] * 3)))


def test_one_buffer_filled_anew_for_each_sample_is_no_danger():
    numbers, record = np.zeros(3), np.zeros(1, [("a", "i4")])

    def sample(i):
        numbers[:], record["a"] = i, i
        return {"numbers": numbers, "records": record, "record": record[0], "text": np.array([str(i)])}

    spec = spec_of(sample(0), 3)
    memory = np.zeros(spec.nbytes, np.uint8)
    batch = landed(*written(RowWriter(spec, memory, ragged=False), map(sample, range(3))), memory, 3)
    assert batch["numbers"][:, 0].tolist() == [0, 1, 2]
    assert [records["a"][0] for records in batch["records"]] == [0, 1, 2]
    assert [record["a"] for record in batch["record"]] == [0, 1, 2]
    assert [text[0] for text in batch["text"]] == ["0", "1", "2"]


def test_payloads_of_nans_are_kept():
    for dtype, bits in ((np.float64, 0x7FF4_0000_DEAD_BEEF), (np.float32, 0x7FA0_1234), (np.float16, 0x7D01)):
        odd = np.array([bits], f"u{np.dtype(dtype).itemsize}").view(dtype)
        batch = collated([(odd, odd[0], torch.from_numpy(odd)), (odd, odd[0], torch.from_numpy(odd))])
        for column in batch:
            assert set(column.numpy().view(f"u{np.dtype(dtype).itemsize}").ravel().tolist()) == {bits}


tensors = {
    "that needs a gradient": torch.ones(2, 2, requires_grad=True),
    "made of one": torch.ones(2, 2, requires_grad=True) * 2,
    "that is conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "that is negated": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "that is transposed": torch.arange(6).reshape(2, 3).T,
    "that is expanded": torch.ones(1).expand(3),
    "of no dimensions": torch.tensor(3.5),
    "that is empty": torch.empty(0, 3),
    "of bfloat16, transposed": torch.ones(2, 3, dtype=torch.bfloat16).T,
    "of a module": torch.nn.Parameter(torch.ones(3)),
    "made for inference": torch.inference_mode()(lambda: torch.ones(3))(),
}


@pytest.mark.parametrize("tensor", tensors.values(), ids=tensors)
def test_a_tensor_is_stacked_as_torch_does(tensor):
    batch = collated([tensor, tensor])
    assert same(batch, torch.stack([tensor, tensor]).detach().clone())
    assert not batch.requires_grad


def test_a_tensor_and_an_array_of_one_dtype_go_together():
    batch = collated([(np.ones(2, np.float32), torch.zeros(2)), (torch.zeros(2), np.ones(2, np.float32))])
    assert [column.tolist() for column in batch] == [[[1, 1], [0, 0]], [[0, 0], [1, 1]]]


odd_leaves = {
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
    "a date": np.datetime64("2020-01-01"),
    "a span": np.timedelta64(3, "s"),
    "texts": np.array(["one", "three"]),
    "byte strings": np.array([b"one", b"three"]),
    "records": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "a record": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])[0],
    "objects": np.array([{"any": 1}, None], object),
    "long doubles": np.array([1.5], np.longdouble),
    "nothing": None,
    "a numpy text": np.str_("x"),
}


@pytest.mark.parametrize("leaf", odd_leaves.values(), ids=odd_leaves)
def test_what_has_no_place_in_a_tensor_comes_as_a_list(leaf):
    batch = collated([leaf, leaf])
    assert type(batch) is list
    for one in batch:
        assert type(one) is type(leaf)
        assert np.array_equal(np.asarray(one), np.asarray(leaf))
        assert not is_array(one) or one.dtype == leaf.dtype


def test_texts_bytes_and_none_may_be_mixed():
    assert collated(["one", None, b"two"]) == ["one", None, b"two"]
