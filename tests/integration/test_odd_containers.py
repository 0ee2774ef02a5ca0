"""Containers of all types come out of workers as they are made without any; a dataset may make its batches itself."""

from __future__ import annotations

from collections import Counter, defaultdict, deque

import pytest
import torch

from swift_loader import DataError
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
