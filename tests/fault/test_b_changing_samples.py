"""Row B6 of the faults: samples whose shape, dtype or structure changes. Stacked as one process would, or an error that
names the sample; never a mix with old bytes.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from swift_loader import LayoutError
from tests.fault.changing import Changing, Quick
from tests.fault.oracle import World
from tests.fault.worlds import in_some_worlds
from tests.loaders import started
from tests.slow import slow
from tests.unit.batch.samples import same


def _column(leaves: list[Any]) -> Any:
    """What a column must be, said as plainly as possible; raises where its leaves do not fit each other."""
    if all(leaf is None or isinstance(leaf, str) for leaf in leaves):
        return leaves
    if any(leaf is None or isinstance(leaf, str | list) for leaf in leaves):
        raise ValueError
    if isinstance(leaves[0], int) and not isinstance(leaves[0], bool) and any(type(leaf) is float for leaf in leaves):
        raise ArithmeticError  # ints and floats: looked at by hand
    tensors = [torch.as_tensor(_native(leaf)) for leaf in leaves]
    if len({tuple(tensor.shape) for tensor in tensors}) > 1:
        raise ValueError
    dtype = functools.reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
    promoted = [tensor.to(dtype) for tensor in tensors]
    if any((one.double() != other.double()).any() for one, other in zip(promoted, tensors, strict=True)):
        raise ValueError  # an integer that the floats cannot hold
    return torch.stack(promoted)


def _native(leaf: Any) -> Any:
    if isinstance(leaf, float):
        return np.float64(leaf)
    return leaf.astype(leaf.dtype.newbyteorder("=")) if isinstance(leaf, np.ndarray) else leaf


def _expected(samples: list[Any]) -> Any:
    """The batch, or None where there must be none."""
    columns = [sample["a"] for sample in samples], [sample["b"][0] for sample in samples]
    try:
        a, b = (_list_column(column) if isinstance(column[0], list) else _column(column) for column in columns)
    except ValueError:
        return None
    return {"a": a, "b": (b,)}


def _list_column(column: list[Any]) -> list[Any]:
    if not all(isinstance(leaf, list) for leaf in column):
        raise ValueError
    return [_column([leaf[0] for leaf in column])]


def _mixes_numbers(samples: list[Any]) -> bool:
    """Whether ints, floats and numpy's stand in one column: that has rules of its own, and tests of its own."""
    kinds = [{type(leaf) for leaf in column} for column in zip(*((s["a"], s["b"][0]) for s in samples), strict=True)]
    return any(float in column and len(column) > 1 for column in kinds)


def _steps(loader: Any, firsts: range) -> Iterator[tuple[int, tuple[Any, str]]]:
    """Two epochs: for each step its first sample, and its batch or the error's text."""
    for _ in range(2):
        iterator = iter(loader)
        for first in firsts:
            try:
                yield first, (next(iterator), "")
            except LayoutError as error:
                yield first, (None, str(error))


def _check_changing(seed: int, count: int, odd: float, **settings: Any) -> tuple[int, int]:
    """All batches of two epochs against what they must be; gives back how many came and how many were refused."""
    dataset = Changing(count, seed, odd=odd)
    kwargs = {"count": count, "seed": seed, "odd": odd}
    given = {"batch_size": 4, "shuffle": False, "validate": False, "worker_per_consumer": 1, **settings}
    came = refused = 0
    with started(Changing, kwargs, **given) as loader:
        for first, (batch, told) in _steps(loader, range(0, count, 4)):
            came, refused = came + (not told), refused + bool(told)
            samples = [dataset[index] for index in range(first, first + 4)]
            if told:
                index = int(re.search(r"sample (\d+)", told)[1])
                assert first < index < first + 4, (seed, first, told)
                assert _mixes_numbers(samples) or _expected(samples) is None, (seed, first, told)
            else:
                assert _mixes_numbers(samples) or same(batch, _expected(samples)), (seed, first)
    return came, refused


@in_some_worlds
def test_b6_samples_that_change_are_stacked_or_refused_and_never_mixed_with_old_bytes(world: World):
    seed = random.Random(str(world)).randrange(1000)
    settings = {key: value for key, value in world.settings.items() if key != "batch_size"}
    came, refused = world.run(lambda: _check_changing(seed, 320, 0.05, **settings))
    assert came > 60
    assert refused > 20


@pytest.mark.parametrize("seed", [0, *map(slow, range(1, 6))])
def test_b6_without_workers_too(seed: int):
    for odd in (0.0, 0.02, 0.3):
        _check_changing(seed, 400, odd, worker_per_consumer=0)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_b6_many_seeds():
    for seed in range(100, 300):
        _check_changing(seed, 2000, 0.03)


def test_b6_among_the_quickest_samples_odd_ones_are_told_and_the_rest_is_right():
    refused = []
    with started(Quick, {"count": 8000}, shuffle=False, batch_size=16, worker_per_consumer=1) as loader:
        iterator = iter(loader)
        for first in range(0, 8000, 16):
            try:
                rows, numbers = next(iterator)
            except LayoutError as error:
                refused.append(int(re.search(r"sample (\d+)", str(error))[1]))
                continue
            indices = range(first, first + 16)
            assert rows.tolist() == [[i if i % 89 == 40 else i % 8] * 4 for i in indices]
            assert numbers.tolist() == list(indices)
            assert numbers.is_floating_point() == any(i % 89 == 40 for i in indices)
    first_of_batch = [i for i in range(50, 8000, 97) if i % 16 == 0]
    assert sorted(refused) == sorted(i + (i in first_of_batch) for i in range(50, 8000, 97))
