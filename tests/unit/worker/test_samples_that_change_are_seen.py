"""Samples are stored together only where none is seen to change before its batch is whole."""

import numpy as np
import pytest
import torch

from swift_loader.batch import rowcode
from swift_loader.worker import rows
from swift_loader.worker.unmade import MakeFailed
from tests.unit.batch.test_tensors_go_to_their_rows_at_once import Rotates, SameArray, SameMemory, SameTensor, Spoils
from tests.unit.worker.making import Making

COUNT, BATCH = 4_000, 8
BATCHES = 40


class Numbered:
    """A tensor of its own for each sample."""

    def __init__(self, samples=None):
        self.samples = samples

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return (torch.full((4,), float(index)) if self.samples is None else self.samples[index]), index


def _values(making, steps=BATCHES):
    return [making.batch(step) for step in range(steps)]


def _right(batches):
    return all(tensor.reshape(len(indices), -1).eq(indices[:, None]).all() for tensor, indices in batches)


def _stored_together(monkeypatch):
    """For each batch from now on of which that is tried: whether it was."""
    tried = []

    def fill_together(dataset, indices, watch):
        count = rowcode.fill_together(dataset, indices, watch)
        tried.append(count == len(indices))
        return count

    monkeypatch.setattr(rows, "fill_together", fill_together)
    return tried


def test_samples_of_their_own_are_stored_together(monkeypatch):
    making = Making(Numbered(), BATCH)
    together = _stored_together(monkeypatch)
    assert _right(_values(making))
    assert together.count(True) > BATCHES // 2
    assert all(together)


@pytest.mark.parametrize("kind", [SameTensor, SameMemory, SameArray, Rotates, Spoils])
def test_a_dataset_that_uses_memory_again_is_seen_to_with_its_first_batch(kind, monkeypatch):
    making = Making(Numbered(kind()), BATCH)
    together = _stored_together(monkeypatch)
    assert _right(_values(making))
    assert not together


class Turns:
    """Has memory of its own for each sample, at first."""

    def __init__(self, at):
        self.at = at
        self.given = 0
        self.memory = torch.zeros(4)

    def __getitem__(self, index):
        self.given += 1
        numbers = self.memory if self.given > self.at else torch.zeros(4)
        return numbers.fill_(index)


def test_one_that_begins_to_do_so_later_is_an_error_and_never_goes_on():
    making = Making(Numbered(Turns(at=10 * BATCH)), BATCH)
    with pytest.raises(MakeFailed, match=r"has written to the memory of row 0 .* Have __getitem__ return a copy"):
        _values(making, 200)


def test_what_is_odd_now_and_then_is_stored_as_ever(monkeypatch):
    class Odd(Numbered):
        def __getitem__(self, index):
            tensor, _ = super().__getitem__(index)
            return (torch.nn.Parameter(tensor) if index % 97 == 96 else tensor), index

    making = Making(Odd(), BATCH)
    together = _stored_together(monkeypatch)
    assert _right((tensor.detach(), indices) for tensor, indices in _values(making, 200))
    assert {True, False} <= set(together)


def test_what_is_given_as_a_whole_is_stored_together():
    class Whole(Numbered):
        def __getitems__(self, indices):
            asked.append(indices)
            return [self[index] for index in indices]

    asked = []
    making = Making(Whole(), BATCH)
    assert _right(_values(making, 10))
    assert [len(indices) for indices in asked] == [BATCH] * 10


def test_what_is_given_as_a_whole_and_is_odd_is_asked_for_once():
    class Whole(Numbered):
        def __getitems__(self, indices):
            asked.append(indices)
            return [(np.full(4, index, np.float32) if index % 5 == 0 else torch.full((4,), index * 1.0), index)
                    for index in indices]  # fmt: skip

    asked = []
    making = Making(Whole(), BATCH)
    assert _right(_values(making, 10))
    assert [len(indices) for indices in asked] == [BATCH] * 10
