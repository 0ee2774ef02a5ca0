"""A whole batch stored leaf by leaf is what its samples give one by one, or it is said that this cannot be done."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from swift_loader.batch.collate import RowWriter, spec_of
from tests.unit.batch.samples import examples, landed, same
from tests.unit.batch.test_tensors_go_to_their_rows_at_once import OTHERS, PLAIN, ROWS


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Both:
    left: object
    right: object


def _writer(first, capacity=ROWS):
    spec = spec_of(first, capacity)
    memory = np.full(spec.nbytes, 0xAB, np.uint8)
    return RowWriter(spec, memory, ragged=False), memory


def _gathered(samples, capacity=ROWS):
    """The batch as landed; None where its samples cannot be stored together."""
    writer, memory = _writer(samples[0], capacity)
    if writer.gather is None or not writer.gather(samples):
        return None
    return landed(*writer.finish(), memory, len(samples))


SMALL = {name: make for name, make in PLAIN.items() if make(0).nbytes <= 16 * 1024}


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
def test_tensors_of_any_make(make):
    samples = [make(i) for i in range(ROWS)]
    assert same(_gathered(samples), default_collate(samples))


numbers = st.sampled_from([lambda i: i, lambda i: i / 3, lambda i: i % 2 == 0])
kinds = st.sampled_from([tuple, list, lambda parts: {f"part {at}": part for at, part in enumerate(parts)}])


@examples
@given(st.lists(st.one_of(st.sampled_from(sorted(SMALL)).map(SMALL.get), numbers), min_size=1, max_size=4), kinds)
def test_any_mix_in_any_container(makes, kind):
    samples = [{"a": kind([make(i) for make in makes]), "b": (i,)} for i in range(ROWS)]
    writer, expected = _writer(samples[0])
    for row, sample in enumerate(samples):
        writer.write(row, sample)
    other, memory = _writer(samples[0])
    assert other.gather(samples)
    assert memory.tobytes() == expected.tobytes()


@pytest.mark.parametrize("make", [Pair, Both])
def test_containers_of_a_type_of_their_own(make):
    batch = _gathered([make(torch.full((2,), float(i)), i) for i in range(ROWS)])
    assert type(batch) is type(make(0, 0))
    assert same([batch.left, batch.right], [torch.arange(6.0)[:, None].expand(6, 2), torch.arange(ROWS)])


def test_a_short_batch_takes_its_own_rows_alone():
    writer, memory = _writer((torch.zeros(4), 0))
    assert writer.gather([(torch.full((4,), i + 1.0), i) for i in range(2)])
    assert memory[:32].view(np.float32).tolist() == [1] * 4 + [2] * 4
    assert set(memory[32 : 16 * ROWS].tolist()) == {0xAB}


@pytest.mark.filterwarnings("ignore:.*Sparse CSR|.*nested tensors is in prototype|.*quantize|.*deprecated")
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_tensors_unlike_the_layout_are_not(make, at):
    samples = [(torch.full((2,), i), torch.full((3, 3), float(i))) for i in range(ROWS)]
    writer, _ = _writer(samples[0])
    samples[at] = samples[at][0], make()
    assert not writer.gather(samples)
    assert not writer.gather([samples[at]] * ROWS)


ODD = {
    "a parameter": torch.nn.Parameter(torch.zeros(2)),
    "one that wants a gradient": torch.zeros(2, requires_grad=True),
    "doubles": torch.zeros(2, dtype=torch.float64),
    "an array": np.zeros(2, np.float32),
    "a list": [0.0, 0.0],
    "nothing": None,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_neither_is_what_is_no_plain_tensor_of_the_same_dtype(odd):
    samples = [(torch.zeros(2), i) for i in range(ROWS)]
    writer, _ = _writer(samples[0])
    samples[2] = odd, 2
    assert not writer.gather(samples)


@pytest.mark.parametrize("odd", [2**63, True, 1.0, np.int64(1), torch.tensor(1), "1"], ids=repr)
def test_neither_are_numbers_among_which_one_is_another(odd):
    samples = [(torch.zeros(2), i) for i in range(ROWS)]
    writer, _ = _writer(samples[0])
    samples[2] = samples[2][0], odd
    assert not writer.gather(samples)


STRUCTURES = {
    "of another length": (torch.zeros(2), 1, 2),
    "of another type": [torch.zeros(2), 1],
    "with another key": {"x": torch.zeros(2), "z": 1},
    "with another order": OrderedDict(y=1, x=torch.zeros(2)),
}


@pytest.mark.parametrize("odd", STRUCTURES.values(), ids=STRUCTURES)
@pytest.mark.parametrize("first", [(torch.zeros(2), 0), {"x": torch.zeros(2), "y": 0}], ids=["tuple", "dict"])
def test_neither_are_samples_of_another_structure(first, odd):
    writer, _ = _writer(first)
    assert writer.gather([first, first])
    assert not writer.gather([first, odd])


def test_the_first_samples_order_of_keys_is_the_batchs():
    writer, _ = _writer({"x": torch.zeros(2), "y": 0})
    assert not writer.gather([{"y": 0, "x": torch.zeros(2)}] * 2)
    assert writer.gather([{"x": torch.zeros(2), "y": 0}, {"y": 0, "x": torch.zeros(2)}])


@pytest.mark.parametrize(
    "sample", [torch.zeros(5000), (torch.zeros(2), "text"), np.zeros(2)], ids=["large", "objects", "arrays"]
)
def test_what_is_large_or_no_tensor_is_not_held(sample):
    writer, _ = _writer(sample)
    assert writer.gather is None or not writer.gather([sample] * ROWS)
