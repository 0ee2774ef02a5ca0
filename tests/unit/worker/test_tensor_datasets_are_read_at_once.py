"""torch's TensorDataset gives what its samples give, without being asked for them one by one."""

import pytest
import torch
from torch.utils.data import TensorDataset, default_collate

from swift_loader.worker.tensor_rows import TensorRows
from tests.unit.batch.samples import same
from tests.unit.worker.making import Making

COUNT, BATCH = 100, 8


def _numbers(dtype):
    return (torch.rand(COUNT, 3, 2, generator=torch.Generator().manual_seed(1)) * 50).to(dtype)


MAKES = {
    **{str(dtype): lambda dtype=dtype: _numbers(dtype) for dtype in (
        torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool,
        torch.complex64, torch.uint16, torch.float8_e4m3fn,
    )},
    "labels": lambda: torch.arange(COUNT) % 10,
    "transposed": lambda: _numbers(torch.float32).permute(0, 2, 1),
    "every second": lambda: torch.rand(2 * COUNT, 3)[::2],
    "conjugate": lambda: _numbers(torch.complex64).conj(),
    "negated": lambda: _numbers(torch.complex64).conj().imag,
    "expanded": lambda: torch.rand(1, 3).expand(COUNT, 3),
    "no elements": lambda: torch.empty(COUNT, 0),
    "wants a gradient": lambda: torch.rand(COUNT, 3, requires_grad=True),
    "a parameter": lambda: torch.nn.Parameter(torch.rand(COUNT, 3)),
}  # fmt: skip


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_tensor_of_any_make(make, shuffle):
    dataset = TensorDataset(make(), torch.arange(COUNT))
    making = Making(dataset, BATCH, shuffle=shuffle)
    for step in range(COUNT // BATCH):
        numbers, indices = making.batch(step)
        expected, _ = default_collate([dataset[index] for index in indices.tolist()])
        assert same(numbers, expected.detach())


@pytest.fixture
def read(monkeypatch):
    """How many samples are read at once, batch by batch."""
    counted = []
    read_into = TensorRows.read_into

    def counting(self, indices, rows):
        counted.append(len(indices))
        read_into(self, indices, rows)

    monkeypatch.setattr(TensorRows, "read_into", counting)
    return counted


def test_after_the_first_batch_none_is_asked_for_alone(read):
    making = Making(TensorDataset(torch.rand(20, 4), torch.arange(20)), BATCH)
    batches = [making.batch(step) for step in range(3)]
    assert torch.cat([indices for _, indices in batches]).tolist() == list(range(20))
    assert read == [8, 4]


class Doubled(TensorDataset):
    def __getitem__(self, index):
        return tuple(2 * part for part in super().__getitem__(index))


def test_a_class_of_ones_own_is_asked(read):
    making = Making(Doubled(torch.arange(20)), BATCH)
    assert [making.batch(step)[0].tolist() for step in range(2)] == [list(range(0, 16, 2)), list(range(16, 32, 2))]
    assert not read
