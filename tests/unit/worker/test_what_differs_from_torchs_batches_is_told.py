"""Where a batch differs from torch's on purpose, the page for those who come from torch says so, in a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swift_loader.errors import LayoutError
from swift_loader.worker.unmade import MakeFailed
from tests.unit.worker.zoo import (
    Other,
    Pair,
    ours,
    outcome,
    theirs,
)

PAGE = Path(__file__).resolve().parents[3] / "swift_loader" / "docs" / "coming_from_torch.md"


@dataclass
class Record:
    x: Any


class Image(torch.Tensor):
    pass


#: What the table's rows are about: samples of which the two make something else.
CASES = {
    "a tuple": lambda: [(1, 2)] * 2,
    "texts in a list": lambda: [["a"]] * 2,
    "a dataclass": lambda: [Record(1)] * 2,
    "`None`": lambda: [None] * 2,
    "dates, records, arrays of text or objects": lambda: [np.array(["a"])] * 2,
    "an array with negative strides": lambda: [np.arange(3)[::-1]] * 2,
    "a Python `complex`": lambda: [1j] * 2,
    "an `int`, then a `float`": lambda: [1, 0.1],
    "a numpy scalar of float32, then a Python `float`": lambda: [np.float32(1), 0.1],
    "a `float`, then a complex number": lambda: [0.5, np.complex64(1j)],
    "a tensor, then a number": lambda: [torch.tensor(1.0), 2],
    "floats, and an integer that they cannot hold, such as `2**53 + 1`": lambda: [0.5, 2**53 + 1],
    "a text, then a number": lambda: ["a", 1],
    "a key more than the first sample has": lambda: [{"a": 1}, {"a": 1, "b": 2}],
    "a namedtuple, then one with other fields": lambda: [Pair(1, 2), Other(1, 2)],
    "a namedtuple, then a longer tuple": lambda: [Pair(1, 2), (1, 2, 3)],
    "`Counter(a=1)`, then `Counter(a=5)`": lambda: [Counter(a=1), Counter(a=5)],
    "a tensor that requires a gradient": lambda: [torch.ones(1, requires_grad=True)] * 2,
    "a subclass of `Tensor`": lambda: [torch.ones(1).as_subclass(Image)] * 2,
    "`np.ma.MaskedArray`": lambda: [np.ma.array([1, 2], mask=[0, 1])] * 2,
    "a quantized tensor": lambda: [torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)] * 2,
    "complex32 and other dtypes that numpy lacks, but for bfloat16 and float8": lambda: (
        [torch.ones(2).to(torch.complex32)] * 2
    ),
}


def _shown(result):
    if isinstance(result, Exception):
        return "an error"
    if isinstance(result, torch.Tensor):
        kind = "" if type(result) is torch.Tensor else f", {type(result).__name__}"
        return str(result.dtype).removeprefix("torch.") + kind + (", with a gradient" if result.requires_grad else "")
    if isinstance(result, Counter):
        return f"`a` is {result['a'].tolist()}"
    if type(result) is list and result and type(result[0]) in (list, tuple):
        return f"a list of {type(result[0]).__name__}s"
    return f"a {type(result).__name__}"


def _told():
    """The page's rows: what is batched, what torch makes of it, what is made of it here."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 4}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch, of what is new in it or old
def test_what_differs_on_purpose_is_told_in_the_page(name):
    samples = CASES[name]()
    torchs, own = outcome(theirs, samples), outcome(ours, samples)
    assert (_shown(torchs), _shown(own)) == _told()[name]
    assert not isinstance(own, Exception) or isinstance(own, MakeFailed)
    if isinstance(own, MakeFailed):
        assert isinstance(own.report.exception(), LayoutError)


def test_the_pages_table_tells_of_nothing_else():
    assert _told().keys() - {"samples"} == CASES.keys()
