"""Datasets and functions that the tests of the arguments give to loaders. Workers import this: it loads no torch."""

from __future__ import annotations

import os
import threading

import numpy as np

from swift_loader import worker_info
from tests.datasets import Noted, Numbers, WithoutLength


def make_no_dataset() -> int:
    return 5


def make_without_length():
    return WithoutLength()


class Odd(Numbers):
    """Raises what is hard to carry."""

    def __init__(self, how: str) -> None:
        super().__init__(8)
        self.how = how

    def __getitem__(self, index: int):
        if self.how == "unpicklable":
            error = RuntimeError("holds a lock")
            error.lock = threading.Lock()
            raise error
        if self.how == "unloadable":
            raise NeedsTwo("a", "b")
        if self.how == "stop":
            raise StopIteration
        if self.how == "huge":
            raise ValueError("x" * 1_000_000)
        if self.how == "no text":
            raise WithoutText
        raise KeyError(index)


class NeedsTwo(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Changing(Numbers):
    """Sample 11 is of another kind than the others."""

    def __init__(self, other) -> None:
        super().__init__(16)
        self.other = other

    def __getitem__(self, index: int):
        return self.other if index == 11 else {"x": index}


def fails_for_7(samples: list) -> int:
    return len(samples) // all(sample["i"] != 7 for sample in samples)


def as_bytes(batch) -> bytes:
    return bytes(len(batch))


def generator_of(samples: list):
    return (sample for sample in samples)


def make_numbers(count: int) -> Numbers:
    return Numbers(count)


def as_text(samples: list[int]) -> str:
    return ",".join(map(str, samples))


def encode(batch) -> bytes:
    return bytes(int(number) for number in batch)


class NotedFailure(Noted):
    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        raise RuntimeError("no disc")


class Generating(Numbers):
    def __init__(self, lines) -> None:
        super().__init__(3)
        self.lines = lines

    def __getitem__(self, index: int) -> str:
        return next(self.lines)


class Backwards:
    """A plan of a user's own."""

    def step_count(self, epoch: int, consumer: int) -> int:
        return 3 + epoch

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:
        last = min(first + count, self.step_count(epoch, consumer))
        return [[90 - step, consumer, epoch] for step in range(first, last)]

    def fingerprint(self) -> dict[str, str]:
        return {"plan": "Backwards"}


class YourDataset(Numbers):
    """Constructed by position."""

    def __init__(self, count: int, factor: int) -> None:
        super().__init__(count)
        self.factor = factor

    def __getitem__(self, index: int):
        return np.array([self.factor * index])


class Seeing(Numbers):
    """Sample i is the GPU that its worker saw when it built this, and that worker."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.seen = int(os.environ["CUDA_VISIBLE_DEVICES"])

    def __getitem__(self, index: int):
        info = worker_info()
        return self.seen, info.gpu_index, info.worker, os.getpid()


def repr_bytes(batch: list) -> bytes:
    return repr(batch).encode()


class Squares:
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index * index


class InfiniteAtSix(Numbers):
    def __getitem__(self, index: int) -> float:
        return float("inf") if index == 6 else float(index)


def list_of_five() -> list[int]:
    return [0, 1, 2, 3, 4]


class Wraps:
    """Hands on to another dataset all that it has not itself."""

    def __init__(self, ds: list[int]) -> None:
        self.ds = ds

    def __getattr__(self, name: str) -> object:
        return getattr(self.ds, name)

    def __len__(self) -> int:
        return len(self.ds)

    def __getitem__(self, index: int) -> int:
        return self.ds[index]
