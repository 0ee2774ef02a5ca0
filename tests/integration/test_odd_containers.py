"""Containers of all types come out of workers as they are made without any; a dataset may make its batches itself."""

from __future__ import annotations

import threading
from collections import Counter, UserDict, defaultdict, deque

import numpy as np
import pytest
import torch

from swift_loader import DataError, SwiftLoader
from tests.loaders import started
from tests.odd_containers import MadeBatch, MakesBatches, Odd, Tokens, as_it_is

COUNTS = pytest.mark.parametrize("count", [0, 2])


@COUNTS
def test_a_batch_is_a_function_of_its_samples_whichever_worker_makes_it(count: int):
    with started(Odd, batch_size=5, shuffle=False, worker_per_consumer=count) as loader:
        for first, batch in zip(range(0, 30, 5), [*loader], strict=True):
            indices = list(range(first, first + 5))
            assert list(batch) == list(Odd()[first])
            assert [type(part) for part in map(batch.get, ("tokens", "counts", "groups", "line"))] == [
                Tokens, Counter, defaultdict, deque,
            ]  # fmt: skip
            assert (batch["tokens"].encodings, batch["groups"].default_factory) == (f"of {first}", list)
            assert batch["tokens"]["ids"][:, 0].tolist() == batch["counts"]["a"].tolist() == indices
            assert batch["counts"]["b"].tolist() == [1] * len(indices)
            values = [Odd()[index]["groups"]["x"] for index in indices]
            assert batch["groups"]["x"].dtype == torch.float64
            assert batch["groups"]["x"].tolist() == values
            assert list(batch["line"][1]) == [f"text {index}" for index in indices]


@COUNTS
@pytest.mark.parametrize("kind", ["dict", "namedtuple", "tuple"])
def test_a_collate_gets_the_batch_that_the_dataset_made(count: int, kind: str):
    given = {"batch_size": 2, "shuffle": False, "worker_per_consumer": count, "collate_fn": as_it_is}
    with started(MakesBatches, {"kind": kind}, **given) as loader:
        batches = list(loader)
    assert len(batches) == 16
    for step, batch in enumerate(batches):
        assert type(batch) is {"dict": dict, "namedtuple": MadeBatch, "tuple": tuple}[kind]
        x, y = batch.values() if kind == "dict" else batch
        assert x.tolist() == y.tolist() == [2 * step, 2 * step + 1]


@COUNTS
@pytest.mark.parametrize("kind", ["dict", "namedtuple", "tuple"])
def test_without_a_collate_such_a_batch_is_refused_also_where_it_has_as_many_parts_as_samples(count: int, kind: str):
    size = 3 if kind == "tuple" else 2
    with (
        pytest.raises(DataError, match=rf"^__getitems__ was asked for {size} samples and gave a .*collate_fn"),
        started(MakesBatches, {"kind": kind}, batch_size=size, shuffle=False, worker_per_consumer=count) as loader,
    ):
        next(iter(loader))


def test_an_array_of_samples_is_batched_row_by_row():
    with started(MakesBatches, {"kind": "array"}, batch_size=4, shuffle=False, worker_per_consumer=0) as loader:
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [UserDict, lambda items: deque(items.values())], ids=["UserDict", "deque"])
def test_what_is_not_finite_is_found_in_every_container(kind):
    samples = [kind({"x": 0.5, "y": np.array([value, 1.0])}) for value in (0.5, np.nan)]
    with (
        SwiftLoader.from_dataset(samples, 2, 1, 0, shuffle=False, check_finite=True) as loader,
        pytest.raises(DataError, match=r"sample 1, \[('y'|1)\], has 1 of 2 values"),
    ):
        next(iter(loader))


class Locked(UserDict):
    """Has something that cannot be sent."""

    def __init__(self, data):
        super().__init__(data)
        self.lock = threading.Lock()


def test_what_cannot_be_sent_beside_the_items_is_named():
    class Set:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return {"a": Locked({"x": 1})}

    with (
        SwiftLoader.from_dataset(Set(), 2, 1, 0, shuffle=False) as loader,
        pytest.raises(DataError, match=r"sample 0, \['a'\]\.__dict__\['lock'\], is a lock, which cannot be sent"),
    ):
        next(iter(loader))
