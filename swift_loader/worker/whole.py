"""``__getitems__``, a dataset's own way to all samples of a batch: whether it is taken, and what it may give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from swift_loader.batch.containers import is_mapping, is_sequence
from swift_loader.errors import DataError


def whole_batches_of(dataset: Any) -> Callable[[list[int]], Any] | None:
    """The dataset's ``__getitems__``, unless a class further down has its own way to a single sample.

    torch's loader takes ``__getitems__`` wherever it finds one: what a subclass or a wrapper does to each sample is
    then left out without a word.
    """
    for home in (dataset, *type(dataset).__mro__):
        if getattr(home, "__dict__", {}).get("__getitems__") is not None:
            return dataset.__getitems__  # type: ignore[no-any-return] # just found
        if home is not dataset and "__getitem__" in vars(home):
            break
    return None


def drawn(given: Any) -> Any:
    """What ``__getitems__`` gave; a generator's samples as a list, since drawing them is the dataset's work."""
    return list(given) if isinstance(given, Iterator) else given


def samples_of(given: Any, count: int) -> Any:
    """The samples in what ``__getitems__`` gave for so many, for the default collate.

    Raises:
        DataError: if these are no samples.
    """
    if not _holds_samples(given):
        raise DataError(
            f"__getitems__ was asked for {count} samples and gave {_in_words(given)}, not a list of samples. Have it "
            "return a list of them, or, for a batch that it has made itself, give a collate_fn: that gets it as it is"
        )
    if len(given) != count:
        raise DataError(
            f"__getitems__ was asked for {count} samples and gave {_in_words(given)} of {len(given)}. Have it return "
            "one sample for each index; a batch that it has made itself is for a collate_fn alone, and then no list"
        )
    return given


def as_given(given: Any, count: int) -> Any:
    """What ``__getitems__`` gave for so many samples, for a collate of the user's: as it is, as torch does.

    Raises:
        DataError: if it is a list of more or fewer samples.
    """
    return samples_of(given, count) if type(given) is list else given


def _holds_samples(given: Any) -> bool:
    """Whether its items are samples, one by one: not so of a namedtuple, nor of what has keys."""
    if is_sequence(given):
        return not hasattr(given, "_fields")
    return getattr(given, "ndim", 0) > 0 and hasattr(given, "__len__")  # rows of an array or a tensor


def _in_words(given: Any) -> str:
    keys = getattr(given, "_fields", None) or (list(given) if is_mapping(given) else [])
    return f"a {type(given).__name__}" + (f" with {', '.join(map(repr, keys[:4]))}" if keys else "")
