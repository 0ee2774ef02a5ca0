"""Datasets whose samples have odd bits, lie in odd memory or are of odd types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.datasets import Numbers

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


class OfEachKind(Numbers):
    """Two samples of each kind."""

    def __init__(self, folder: str) -> None:
        super().__init__(2 * len(MADE))
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        return list(MADE.values())[index // 2](self.folder)


def in_a_list(samples: list[Any]) -> list[Any]:
    return samples
