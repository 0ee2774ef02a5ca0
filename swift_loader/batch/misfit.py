"""Samples of which no batch can be made: what is wrong, and, in words, what helps against that and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swift_loader.batch.blame import in_words
from swift_loader.batch.layout import Column
from swift_loader.batch.tree import Difference, Mismatch


class Misfit(Exception):
    """A leaf does not fit the layout that the first sample of its batch fixed."""

    def __init__(self, path: str, row: int, found: str, expected: str, differs_in: Difference = "type") -> None:
        super().__init__(path, row, found, expected, differs_in)
        self.path, self.row, self.found, self.expected, self.differs_in = path, row, found, expected, differs_in


class Rounded(Exception):
    """A leaf holds an integer that the batch's floats cannot hold."""

    def __init__(self, path: str, row: int, value: int, dtype: str) -> None:
        super().__init__(path, row, value, dtype)
        self.path, self.row, self.value, self.dtype = path, row, value, dtype


class Unbatchable(Exception):
    """A leaf of a type that the default collate does not know."""

    def __init__(self, path: str, found: str, remedy: str = "Convert it in the dataset") -> None:
        super().__init__(path, found, remedy)
        self.path, self.found, self.remedy = path, found, remedy


def phrase(column: Column, leaf: Any) -> str:
    """What a leaf is, in words."""
    if column.kind == "objects":
        return "None" if leaf is None else f"a {type(leaf).__name__}"
    return f"shape {column.shape} of {column.name}"


def difference(one: Column, other: Column) -> Difference:
    """What two columns differ in."""
    if one.kind != other.kind:
        return "type"
    if one.name == other.name:
        return "shape"
    return "dtype" if one.shape == other.shape else "dtype and shape"


def too_large(leaf: int, path: str, row: int) -> Misfit:
    """An integer that has no place anywhere."""
    # Not its digits: there may be a million of them.
    return Misfit(path, row, f"an integer of {leaf.bit_length()} bits", "a number of 64 bits", "size")


def explained(
    error: Misfit | Rounded | Unbatchable | Mismatch, indices: Sequence[int], *, ragged: bool
) -> tuple[str, int]:
    """What to tell, and which row is to blame. ``indices``: of the samples; ``ragged``: whether they may be lists."""
    row = error.row if isinstance(error, Misfit | Rounded) else 0
    who = f"sample {indices[row]}{in_words(error.path)}"
    if isinstance(error, Unbatchable):
        text = (
            f"{who} is a {error.found}, which the default collate cannot batch: it takes numbers, bool, str, bytes, "
            "None, numpy arrays, torch tensors, and mappings, sequences and dataclasses of them. "
            f"{error.remedy}, or give a collate_fn"
        )
    elif isinstance(error, Rounded):
        text = (
            f"{who} has the integer {error.value}, which {error.dtype} cannot hold, and that is what this batch's "
            "numbers are together, as torch promotes them (it rounds). Give all of them one dtype in the dataset, or a "
            "collate_fn"
        )
    else:
        first = f"the batch's first sample, {indices[0]}, has {error.expected}"
        text = f"{who} has {error.found}; {first}. {_advice(error, ragged=ragged)}"
    return text, row


def _advice(error: Misfit | Mismatch, *, ragged: bool) -> str:
    if error.differs_in == "type" and "None" in (error.found, error.expected):
        return _NONE
    advice = _ADVICE[error.differs_in]
    return advice[1 if ragged else 0] if isinstance(advice, tuple) else advice


_NONE = (
    "A tensor has no place for None: give a number that stands for it (NaN, -1), or a collate_fn that knows what to do"
)
_KEYS = (
    "Give every sample the same keys, or a collate_fn that fills in or leaves out what only some have (torch's collate "
    "leaves out without a word what the first sample lacks)"
)
_LISTS = "Lists are batched item by item, so they must be equally long:"
_PAD = (
    "pad them in the dataset or in a collate_fn, as torch's pad_sequence and transformers' DataCollatorWithPadding do"
)

#: For each difference; or two, of which the second is for those who have set ragged='list' already.
_ADVICE: dict[Difference, str | tuple[str, str]] = {
    "type": "Give every sample the same types, or a collate_fn that knows what to do",
    "keys": _KEYS,
    "length": (
        f"{_LISTS} {_PAD}; or make arrays of them and set ragged='list' to get lists of tensors",
        f"{_LISTS} make arrays of them, which ragged='list' is for; or {_PAD}",
    ),
    "dtype": "No dtype is for both: convert them to one in the dataset, or give a collate_fn",
    "dtype and shape": (
        "Make them alike, or give a collate_fn that knows what to do. Of one dtype, shapes may differ: ragged='list'",
        "ragged='list' takes any shape, but one dtype: convert them to one in the dataset, or give a collate_fn",
    ),
    "shape": (
        "Make them alike, give a collate_fn that knows what to do, or set ragged='list' to get lists of tensors",
        "Make them alike, or give a collate_fn that knows what to do",
    ),
    "size": "Make it smaller, or text; or give a collate_fn that knows what to do",
}
