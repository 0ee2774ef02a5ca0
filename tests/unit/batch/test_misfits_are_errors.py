"""Samples that do not fit each other are an error that names leaf, row and both makes; nothing is cast unseen."""

from collections import UserString
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.misfit import Misfit, Unbatchable
from tests.unit.batch.samples import Box, Pair, Typed, collated, written

f32, i16 = np.ones((2, 3), np.float32), np.ones(2, np.int16)


@pytest.mark.parametrize(
    ("first", "later", "found", "expected"),
    [
        (i16, i16.astype(np.uint16), "uint16", "int16"),
        (np.uint64(1), 1, "int64", "uint64"),
        (torch.ones(2).to(torch.float8_e5m2), torch.ones(2), "float32", "float8_e5m2"),
        (f32, f32[:1].astype(float), "(1, 3) of float64", "(2, 3) of float32"),
        (f32, f32.T, "(3, 2)", "(2, 3)"),
        (f32, f32[:, :1], "(2, 1)", "(2, 3)"),
        (f32, np.float32(1), "()", "(2, 3)"),
        (f32, f32[None], "(1, 2, 3)", "(2, 3)"),
        (f32, f32[:0], "(0, 3)", "(2, 3)"),
        (np.float32(1), f32, "(2, 3)", "()"),
        (torch.ones(2).to(torch.float8_e5m2), np.ones(2, np.uint8), "uint8", "float8_e5m2"),
        (torch.ones(2).to(torch.float8_e5m2), torch.ones(2).to(torch.float8_e4m3fn), "float8_e4m3fn", "float8_e5m2"),
        (f32, "text", "a str", "float32"),
        (f32, None, "None", "float32"),
        (f32, np.array(["text"]), "a ndarray", "float32"),
        (f32, [1], "a list", "float32"),
        (f32, {1}, "a set", "float32"),
        (f32, np.ma.array(f32), "MaskedArray", "float32"),
        (f32, torch.ones(2, 3, device="meta"), "meta", "float32"),
        ("text", f32, "float32", "str"),
        ("text", [1], "a list", "str"),
        (1, object(), "a object", "int64"),
        (1, np.ones(2, np.int64), "(2,)", "()"),
    ],
)
@pytest.mark.parametrize("row", [1, 3])
def test_a_later_sample_must_be_like_the_first(first, later, found, expected, row):
    samples = [{"x": (first, 0)}] * row + [{"x": (later, 0)}]
    with pytest.raises(Misfit) as caught:
        collated(samples)
    error = caught.value
    assert (error.path, error.row) == ("sample['x'][0]", row)
    assert found in error.found
    assert expected in error.expected


@pytest.mark.parametrize(
    ("first", "later", "path"),
    [
        ((1, 2), (1, 2, 3), "sample"),
        ((1, 2), {0: 1, 1: 2}, "sample"),
        ([1, 2], "12", "sample"),
        ({"a": 1}, {"a": 1, "b": 2}, "sample"),
        (Pair(1, 2), Typed(1, 2), "sample"),
        ((1, 2), 1, "sample"),
        ({"a": 1}, {"b": 1}, "sample"),
        (Pair(1, (2,)), Pair(1, 2), "sample.right"),
        (Box([1, 2]), Box([1]), "sample.content"),
        (1, (1,), "sample"),
        ((1, 2), (1, (2,)), "sample[1]"),
    ],
)
def test_another_structure_is_a_misfit(first, later, path):
    with pytest.raises(Misfit) as caught:
        collated([first, first, later])
    assert (caught.value.path, caught.value.row) == (path, 2)


def _endless():
    endless = []
    endless.append(endless)
    return endless


unbatchable = {
    "a set": lambda: {1, 2},
    "a generator": lambda: iter(()),
    "an object": SimpleNamespace,
    "a class": lambda: Box,
    "a user's string": lambda: UserString("text"),
    "a list that holds itself": _endless,
    "a masked array": lambda: np.ma.array([1, 2], mask=[0, 1]),
    "the masked constant": lambda: np.ma.masked,
    "a sparse tensor": lambda: torch.eye(2).to_sparse(),
    "a compressed tensor": lambda: torch.eye(2).to_sparse_csr(),
    "a quantized tensor": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "a tensor elsewhere": lambda: torch.ones(2, device="meta"),
    "a tensor of half complex": lambda: torch.ones(2).to(torch.complex32),
    "an array of 64 dimensions": lambda: np.ones((1,) * 64, np.int8),
    "a tensor of 70 dimensions": lambda: torch.ones((1,) * 70),
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.strided),
    "a jagged tensor": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch, of what is new in it or old
@pytest.mark.parametrize("make", unbatchable.values(), ids=unbatchable)
def test_what_cannot_be_batched_is_refused_at_once(make):
    with pytest.raises(Unbatchable) as caught:
        spec_of({"x": make()}, 2)
    assert caught.value.path in ("sample['x']", "sample")  # the whole sample where no end to it is found
    assert caught.value.found


def test_an_array_of_as_many_dimensions_as_can_be_is_batched():
    leaf = np.ones((1,) * 63, np.int8)
    assert collated([leaf, leaf]).shape == (2, *leaf.shape)


def test_another_dataclass_or_namedtuple_is_another_layout():
    memory = np.zeros(1024, np.uint8)
    writer = RowWriter(spec_of(Pair(1, 2), 4), memory, ragged=False)
    assert writer.fits(Pair(3, 4))
    assert not writer.fits((3, 4))
    assert not writer.fits(Box(3, 4))
    assert not writer.fits(Pair(3, 4.5))
    assert not writer.fits(Pair(3, object()))
    assert not writer.fits(Pair(3, [4]))


def test_a_layout_of_bits_does_not_fit_integers():
    writer = RowWriter(spec_of(torch.ones(2, dtype=torch.bfloat16), 4), np.zeros(1024, np.uint8), ragged=False)
    assert writer.fits(torch.zeros(2, dtype=torch.bfloat16))
    assert not writer.fits(np.zeros(2, np.int16))


def test_after_a_misfit_the_next_batch_is_whole():
    spec = spec_of((1, "a"), 3)
    memory = np.zeros(spec.nbytes, np.uint8)
    writer = RowWriter(spec, memory, ragged=False)
    with pytest.raises(Misfit):
        written(writer, [(1, "a"), (2.5, "b"), (3, 4)])
    left, objects = written(writer, [(1, "c"), (2, "d")])
    assert left is spec
    assert objects == [["c", "d"]]
