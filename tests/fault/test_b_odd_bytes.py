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
from tests.datasets import Numbers
from tests.fault.oracle import World
from tests.fault.raising import NaNAt
from tests.fault.worlds import in_some_worlds
from tests.loaders import started
from tests.unit.batch.samples import same

# B7 -----------------------------------------------------------------------------------------------------------------

_WIDTHS = {torch.float16: np.uint16, torch.bfloat16: np.uint16, torch.float32: np.uint32, torch.float64: np.uint64}


def _bits(dtype: torch.dtype) -> Any:
    """NaNs of all sorts, infinities, denormals, both zeros, the ends, and random bits."""
    unsigned = _WIDTHS[dtype]
    if unsigned is np.uint16:
        return np.arange(1 << 16, dtype=np.uint16)  # all there are
    info = np.iinfo(unsigned)
    mantissa = 23 if unsigned is np.uint32 else 52
    inf = ((1 << (info.bits - 1 - mantissa)) - 1) << mantissa
    sign = 1 << (info.bits - 1)
    odd = [0, 1, 2, (1 << mantissa) - 1, 1 << mantissa, inf - 1, inf, inf + 1, inf | (1 << (mantissa - 1)), sign - 1]
    drawn = np.random.default_rng(1).integers(0, info.max, 4096, dtype=unsigned, endpoint=True)
    return np.concatenate([np.array([*odd, *(one | sign for one in odd)], unsigned), drawn])


class AllBits(Numbers):
    """Sample i is all bits turned by i, in every float there is."""

    def __getitem__(self, index: int) -> Any:
        found = {str(dtype): torch.from_numpy(np.roll(_bits(dtype), index).copy()).view(dtype) for dtype in _WIDTHS}
        arrays = {f"numpy {name}": value.numpy() for name, value in found.items() if "bfloat" not in name}
        return {**found, **arrays, "number": np.roll(_bits(torch.float64), index).view(np.float64)[0]}


@pytest.mark.parametrize("count", [0, 1])
def test_b7_all_bits_arrive_as_they_are(count: int):
    dataset = AllBits(8)
    with started(AllBits, {"count": 8}, batch_size=4, shuffle=False, worker_per_consumer=count) as loader:
        for first, batch in zip((0, 4), loader, strict=True):
            samples = [dataset[index] for index in range(first, first + 4)]
            stacked = {key: torch.stack([torch.as_tensor(s[key]) for s in samples]) for key in samples[0]}
            assert same(batch, stacked)


#: Leaves with something in them that is not finite, how many of how many, and the way there.
BAD = {
    "a float": (lambda: {"x": float("nan")}, "['x'], has 1 of 1"),
    "a complex": (lambda: (complex(1, float("inf")),), "[0], has 1 of 1"),
    "an array": (lambda: {"a": [np.array([1, np.nan, np.inf, -np.inf], np.float32)]}, "['a'][0], has 3 of 4"),
    "a half": (lambda: np.array([1, np.inf], np.float16), "has 1 of 2"),
    "a bfloat16": (lambda: {"t": torch.tensor([1, float("nan")], dtype=torch.bfloat16)}, "['t'], has 1 of 2"),
    "a float8": (lambda: {"t": torch.tensor([1, float("nan")]).to(torch.float8_e5m2)}, "['t'], has 1 of 2"),
    "a complex array": (lambda: np.array([1j, complex(0, np.nan)]), "has 1 of 2"),
    "a scalar": (lambda: {"x": np.float64("inf")}, "['x'], has 1 of 1"),
    "a record": (lambda: {"r": np.array([(1, np.nan)], [("a", "i4"), ("b", "f8")])}, "['r']['b'], has 1 of 1"),
    "a tensor that needs a gradient": (lambda: torch.tensor([float("inf")], requires_grad=True), "has 1 of 1"),
}
FINE = {"i": 3, "x": np.array([5e-324, -0.0, 1.7e308]), "h": np.array([65504], np.float16), "s": "nan", "n": None,
        "b": np.array([True]), "empty": np.zeros(0), "dates": np.array(["NaT"], "M8[s]")}  # fmt: skip


class NotFinite(Numbers):
    """The first samples are not finite, each in its own way; those behind are odd and fine."""

    def __getitem__(self, index: int) -> Any:
        return list(BAD.values())[index][0]() if index < len(BAD) else FINE


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

_BASE = np.arange(24, dtype=np.int32).reshape(4, 6)


class _Own(torch.Tensor):
    """A subclass."""


def _memmapped(folder: str) -> Any:
    path = Path(folder) / "mapped.npy"
    if not path.exists():
        np.save(path, _BASE)
    return np.load(path, mmap_mode="r")


def _frozen() -> Any:
    array = _BASE.copy()
    array.setflags(write=False)
    return array


#: Leaves in odd memory or of odd types. Some are refused; whatever comes is as in one process.
MADE: dict[str, Any] = {
    "structured": lambda folder: np.array([(1, 2.5)], [("a", ">i4"), ("b", "f8")]),
    "a record": lambda folder: np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])[0],
    "objects": lambda folder: np.array([{"any": 1}, None, "x"], object),
    "unicode": lambda folder: np.array(["one", "\U0001f600"]),
    "bytes": lambda folder: np.array([b"one", b""]),
    "variable strings": lambda folder: np.array(["one", "three"], np.dtypes.StringDType()),
    "big-endian": lambda folder: _BASE.astype(">i4"),
    "big-endian complex": lambda folder: (_BASE * (1 + 2j)).astype(">c8"),
    "big-endian scalar": lambda folder: np.array([258], ">i8")[0],
    "transposed": lambda folder: _BASE.T,
    "strided": lambda folder: _BASE[::2, 1::3],
    "reversed": lambda folder: _BASE[::-1, ::-1],
    "strides of zero": lambda folder: np.broadcast_to(np.int32(7), (3, 2)),
    "overlapping": lambda folder: np.lib.stride_tricks.as_strided(_BASE, (4, 6), (4, 4)),
    "read-only": lambda folder: _frozen(),
    "memmapped": _memmapped,
    "40 dimensions": lambda folder: np.full((1,) * 39 + (2,), 3, np.int16),
    "64 dimensions": lambda folder: np.ones((1,) * 64, np.int8),
    "dates": lambda folder: np.array(["2020-01-01", "NaT"], "datetime64[ns]"),
    "a span": lambda folder: np.timedelta64(3, "s"),
    "long doubles": lambda folder: np.array([1.5, 1e4000], np.longdouble),
    "zero-size": lambda folder: np.zeros((3, 0, 2), np.float32),
    "masked": lambda folder: np.ma.array([1, 2], mask=[0, 1]),
    "a matrix": lambda folder: np.asmatrix(_BASE),
    "a recarray": lambda folder: _BASE.view(np.recarray),
    "void": lambda folder: np.array([b"ab"], "V2"),
    "sparse": lambda folder: torch.eye(2).to_sparse(),
    "csr": lambda folder: torch.eye(2).to_sparse_csr(),
    "quantized": lambda folder: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "conjugated": lambda folder: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negated": lambda folder: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "with gradient": lambda folder: torch.ones(2, 2, requires_grad=True) * 2,
    "meta": lambda folder: torch.ones(2, device="meta"),
    "not contiguous": lambda folder: torch.arange(6).reshape(2, 3).T,
    "expanded": lambda folder: torch.ones(1).expand(3),
    "bfloat16": lambda folder: torch.tensor([1.5, float("nan")], dtype=torch.bfloat16),
    "float8": lambda folder: torch.tensor([1.5, 448.0]).to(torch.float8_e4m3fn),
    "float4": lambda folder: torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "sub-byte bits": lambda folder: torch.zeros(2, dtype=torch.uint8).view(torch.bits8),
    "a parameter": lambda folder: torch.nn.Parameter(torch.ones(3)),
    "a subclass": lambda folder: torch.ones(3).as_subclass(_Own),
    "a masked tensor": lambda folder: torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False])),
    "half complex": lambda folder: torch.ones(2).to(torch.complex32),
    "nested": lambda folder: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
}


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
        given: dict[str, Any] = {"collate_fn": _in_a_list} if way == "collate_fn" else {}
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

    @pytest.mark.parametrize("way", ["default collate", "collate_fn"])
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


class OfEachKind(Numbers):
    """Two samples of each kind."""

    def __init__(self, folder: str) -> None:
        super().__init__(2 * len(MADE))
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        return list(MADE.values())[index // 2](self.folder)


def _in_a_list(samples: list[Any]) -> list[Any]:
    return samples


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
