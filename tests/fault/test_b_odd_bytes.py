"""Rows B7 and B8 of the faults: samples whose bits or memory are odd. Equal to what one process gives, or an error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from swift_loader import DataError, LayoutError
from tests.fault.odd_bytes import BAD, MADE, AllBits, NotFinite, OfEachKind, in_a_list
from tests.fault.oracle import World
from tests.fault.raising import NaNAt
from tests.fault.worlds import in_some_worlds
from tests.loaders import started
from tests.slow import slow
from tests.unit.batch.samples import same

# B7 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1])
def test_b7_all_bits_arrive_as_they_are(count: int):
    dataset = AllBits(8)
    with started(AllBits, {"count": 8}, batch_size=4, shuffle=False, worker_per_consumer=count) as loader:
        for first, batch in zip((0, 4), loader, strict=True):
            samples = [dataset[index] for index in range(first, first + 4)]
            stacked = {key: torch.stack([torch.as_tensor(s[key]) for s in samples]) for key in samples[0]}
            assert same(batch, stacked)


@in_some_worlds
def test_b7_check_finite_takes_such_samples_as_failed(world: World):
    given = {**world.settings, "shuffle": False, "validate": False, "batch_size": 1, "check_finite": True}

    def row() -> None:
        with started(NotFinite, {"count": len(BAD) + 2}, **given) as loader:
            iterator = iter(loader)
            for index, (_, told) in enumerate(BAD.values()):
                place = f"sample {index}{', ' if told.startswith(('[', '.')) else ' '}{told} values that are NaN or inf"
                with pytest.raises(DataError, match=re.escape(place)):
                    next(iterator)
            assert [len(batch["x"][0]) for batch in iterator] == [3, 3]

    world.run(row)


@pytest.mark.parametrize(("count", "threads"), [(0, 1), (1, 1), (1, 2)])
def test_b7_check_finite_with_skip_leaves_them_out_and_off_it_costs_and_does_nothing(count: int, threads: int):
    given = {"shuffle": False, "worker_per_consumer": count, "worker_threads": threads}
    with started(NaNAt, {"count": 16}, check_finite=True, on_error="skip", **given) as loader:
        assert [value for batch in loader for value in batch.tolist()] == [i for i in range(16) if i != 5]
        assert loader.statistics()["samples_skipped"] == 1
    with started(NaNAt, {"count": 16}, **given) as loader:
        assert sum(batch.isnan().sum().item() for batch in loader) == 1


# B8 -----------------------------------------------------------------------------------------------------------------


MAY_BE_REFUSED = {
    "default collate": {
        "64 dimensions", "masked", "sparse", "csr", "quantized", "meta", "half complex", "sub-byte bits", "float4",
        "a masked tensor", "nested",
    },
    "collate_fn": set(),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
class TestB8:
    """torch and numpy warn of what is new in them, or old."""

    @staticmethod
    def _batches(folder: Path, way: str, workers: int) -> list[Any]:
        """Of each kind: the batch of two samples, or the error."""
        found: list[Any] = []
        given: dict[str, Any] = {"collate_fn": in_a_list} if way == "collate_fn" else {}
        kwargs = {"folder": str(folder)}
        given |= {"batch_size": 2, "shuffle": False, "validate": False, "worker_per_consumer": workers}
        with started(OfEachKind, kwargs, **given) as loader:
            iterator = iter(loader)
            for _ in MADE:
                try:
                    found.append(next(iterator))
                except (LayoutError, DataError) as error:
                    found.append(error)
        return found

    @pytest.mark.parametrize("way", ["default collate", slow("collate_fn")])
    def test_b8_arrays_and_tensors_of_every_make_are_as_in_one_process_or_refused(self, way: str, tmp_path):
        refused = set()
        of_worker, of_one = self._batches(tmp_path, way, 1), self._batches(tmp_path, way, 0)
        for index, (name, here, there) in enumerate(zip(MADE, of_worker, of_one, strict=True)):
            if isinstance(here, Exception):
                assert type(there) is type(here), (name, here, there)
                assert way == "collate_fn" or re.search(rf"sample {2 * index}\b", str(here)), (name, here)
                refused.add(name)
                continue
            assert _alike(here, there), (name, here, there)
            leaf = MADE[name](str(tmp_path))
            if way == "collate_fn":
                assert _alike(here, [leaf, leaf]), (name, here)
            elif isinstance(here, torch.Tensor):
                assert same(here, _stacked(leaf)), (name, here)
            else:
                assert _alike(here, [leaf, leaf]), (name, here)
        assert refused <= MAY_BE_REFUSED[way]


def _failed(batch: Any) -> bool:
    return isinstance(batch, Exception)


def _by_torch(leaf: Any) -> Any:
    """What torch's own collate makes of two of them in one process, if it does."""
    try:
        return default_collate([leaf, leaf])
    except Exception as error:
        return error


def _stacked(leaf: Any) -> torch.Tensor:
    """Two of them: as torch's collate gives them, or numpy where torch knows no such bytes."""
    by_torch = _by_torch(leaf)
    if isinstance(by_torch, torch.Tensor):
        return by_torch.detach().as_subclass(torch.Tensor)  # a batch's tensors are plain ones
    both = np.stack([np.asarray(leaf)] * 2)
    return torch.from_numpy(both.astype(both.dtype.newbyteorder("=")))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, torch.Tensor):
        if (
            "Masked" in type(one).__name__
            or one.layout is not torch.strided
            or one.is_quantized
            or one.is_nested
            or one.is_meta
        ):
            told = [re.sub(r"j\d+", "j", str(tensor)) for tensor in (one, other)]  # a number of the process's own
            return (one.layout, one.dtype) == (other.layout, other.dtype) and told[0] == told[1]
        return type(one) is type(other) and same(one.detach(), other.detach())
    first, second = np.asanyarray(one), np.asanyarray(other)
    if (first.dtype.str[1:], first.shape) != (second.dtype.str[1:], second.shape):
        return False
    return first.tolist() == second.tolist() or str(first) == str(second)
