"""Which examples are asked for, in which order: the requests of one epoch after the other.

A scheme with chance in it keeps its generator: its epochs differ, and every run is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np

#: What shuffles where no generator is given.
DEFAULT_SEED = 1


class IterationScheme(ABC):
    """Requests for data, epoch by epoch."""

    requests_examples: bool
    """Whether a request is for one example; else it is for a batch."""

    @abstractmethod
    def get_request_iterator(self) -> Iterator[Any]:
        """The requests of one epoch."""


class BatchSizeScheme(IterationScheme):
    """Requests that are sizes of batches."""

    requests_examples = False


class BatchScheme(IterationScheme):
    """Requests that are lists of indices.

    Args:
        examples: The indices, or their number if they are the first.
        batch_size: How many a request holds; the last one holds what is left.
    """

    requests_examples = False

    def __init__(self, examples: int | Iterable[int], batch_size: Any) -> None:
        self.indices = _indices(examples)
        self.batch_size = batch_size
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ValueError(f"batch_size is a whole number of at least 1, not {batch_size!r}")


class IndexScheme(IterationScheme):
    """Requests that are single indices.

    Args:
        examples: The indices, or their number if they are the first.
    """

    requests_examples = True

    def __init__(self, examples: int | Iterable[int]) -> None:
        self.indices = _indices(examples)


class ConstantScheme(BatchSizeScheme):
    """The same size again and again.

    Args:
        batch_size: The size.
        num_examples: If given, requests end when they add up to this; the last one may be smaller.
        times: If given, how many requests there are. With neither they do not end.
    """

    def __init__(self, batch_size: int, num_examples: int | None = None, times: int | None = None) -> None:
        if num_examples and times:
            raise ValueError("ConstantScheme takes num_examples or times, and was given both")
        self.batch_size = batch_size
        self.num_examples = num_examples
        self.times = times

    def get_request_iterator(self) -> Iterator[int]:
        if self.times:
            return repeat(self.batch_size, self.times)
        if self.num_examples:
            count, rest = divmod(self.num_examples, self.batch_size)
            return chain(repeat(self.batch_size, count), [rest] if rest else [])
        return repeat(self.batch_size)


class SequentialScheme(BatchScheme):
    """Batches in order.

    Example:
        >>> list(SequentialScheme(5, 3).get_request_iterator())
        [[0, 1, 2], [3, 4]]
    """

    def get_request_iterator(self) -> Iterator[list[int]]:
        return _cut(self.indices, self.batch_size)


class ShuffledScheme(BatchScheme):
    """Batches of shuffled indices, anew in each epoch.

    Args:
        examples: The indices, or their number if they are the first.
        batch_size: How many a request holds; the last one holds what is left.
        rng: What shuffles; by default one with a fixed seed, so that every run is the same.
        sorted_indices: Whether each batch's indices are put in order, as some files want to be read.
    """

    def __init__(
        self,
        examples: int | Iterable[int],
        batch_size: int,
        *,
        rng: np.random.RandomState | None = None,
        sorted_indices: bool = False,
    ) -> None:
        super().__init__(examples, batch_size)
        self.rng = _generator() if rng is None else rng
        self.sorted_indices = sorted_indices

    def get_request_iterator(self) -> Iterator[list[int]]:
        batches = _cut(_shuffled(self.indices, self.rng), self.batch_size)
        return map(sorted, batches) if self.sorted_indices else batches


class SequentialExampleScheme(IndexScheme):
    """Examples in order."""

    def get_request_iterator(self) -> Iterator[int]:
        return iter(self.indices)


class ShuffledExampleScheme(IndexScheme):
    """Shuffled examples, anew in each epoch.

    Args:
        examples: The indices, or their number if they are the first.
        rng: What shuffles; by default one with a fixed seed.
    """

    def __init__(self, examples: int | Iterable[int], *, rng: np.random.RandomState | None = None) -> None:
        super().__init__(examples)
        self.rng = _generator() if rng is None else rng

    def get_request_iterator(self) -> Iterator[int]:
        return iter(_shuffled(self.indices, self.rng))


class ConcatenatedScheme(IterationScheme):
    """The requests of several schemes, one scheme after the other.

    Args:
        schemes: All of one kind: for examples, or for batches.
    """

    def __init__(self, schemes: Iterable[IterationScheme]) -> None:
        self.schemes = list(schemes)
        kinds = {scheme.requests_examples for scheme in self.schemes}
        if len(kinds) != 1:
            raise ValueError("ConcatenatedScheme takes schemes that all request examples, or all request batches")

    @property
    def requests_examples(self) -> bool:  # type: ignore[override] # theirs
        return self.schemes[0].requests_examples

    def get_request_iterator(self) -> Iterator[Any]:
        return chain.from_iterable(scheme.get_request_iterator() for scheme in self.schemes)


def cross_validation(
    scheme_class: type[IterationScheme], num_examples: int, num_folds: int, *, strict: bool = True, **settings: Any
) -> Iterator[tuple[Any, ...]]:
    """A pair of schemes for each fold: for training, and for validation.

    Args:
        scheme_class: Of both schemes.
        num_examples: How many there are.
        num_folds: Into how many parts they are cut.
        strict: Whether folds must be equally large. If not, each pair comes with the size of its validation set.
        settings: What else the scheme takes.
    """
    if strict and num_examples % num_folds != 0:
        raise ValueError(f"{num_examples} examples cannot be cut into {num_folds} equal folds; strict=False allows it")
    make: Any = scheme_class
    for fold in range(num_folds):
        begin, end = num_examples * fold // num_folds, num_examples * (fold + 1) // num_folds
        training = make([*range(begin), *range(end, num_examples)], **settings)
        validation = make(range(begin, end), **settings)
        yield (training, validation) if strict else (training, validation, end - begin)


def _indices(examples: int | Iterable[int]) -> Iterable[int]:
    return examples if isinstance(examples, Iterable) else range(examples)


def _generator() -> np.random.RandomState:
    return np.random.RandomState(DEFAULT_SEED)


def _shuffled(indices: Iterable[int], rng: np.random.RandomState) -> list[int]:
    shuffled = list(indices)
    rng.shuffle(shuffled)
    return shuffled


def _cut(indices: Iterable[int], size: int) -> Iterator[list[int]]:
    """Lists of that size; the last one holds what is left."""
    if isinstance(indices, Sequence):
        for at in range(0, len(indices), size):
            yield list(indices[at : at + size])
        return
    batch: list[int] = []
    for index in indices:
        batch.append(index)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
