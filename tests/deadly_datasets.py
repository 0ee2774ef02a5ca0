"""Datasets that end, hold up or swell the worker that asks them. Nothing here imports torch."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.datasets import Hangs, Numbers, calls, note
from tests.traced import COUNT, Traced


class Looping(Hangs):
    """Sample ``bad`` is a search in C that holds the interpreter lock for ever."""

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and len(calls(self.folder)) < self.times:
            note(self.folder, "hangs", index)
            re.match("(a+)+$", "a" * 64 + "b")
        return index


class Stuck(Hangs):
    """Sample ``bad`` is in a file that ``path`` names; what is read of it does not matter."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(**options)
        self.path = path

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and len(calls(self.folder)) < self.times:
            note(self.folder, "reads", index)
            with open(self.path, "rb", buffering=0) as file:
                file.read(16)
        return index


class Crashes(Numbers):
    """Some samples end their worker, each in one of several ways; ``by`` says where."""

    def __init__(self, bad: dict[int, str], count: int = 32, by: str = "item") -> None:
        super().__init__(count)
        self.bad, self.by = bad, by

    def __getitem__(self, index: int) -> Any:
        if self.by == "item":
            end_here(self.bad.get(index))
        return index

    def collate(self, samples: list[int]) -> Any:
        for sample in samples:
            end_here(self.bad.get(sample))
        return np.array(samples)


class CrashingRecords(Crashes):
    """Samples that say who they are and draw random numbers; a bad one ends its worker."""

    def __getitem__(self, index: int) -> Any:
        noise = random.random() + np.random.random()
        super().__getitem__(index)
        return {"index": index, "noise": noise}


class Ends(Traced):
    """Sample ``bad`` ends its worker in a way of `ENDINGS`, the first ``times`` times in all workers."""

    def __init__(self, folder: str, how: str, times: int = 1 << 30, bad: int = 13, count: int = COUNT) -> None:
        super().__init__(count)
        self.folder, self.how, self.times, self.bad = folder, how, times, bad

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and len(calls(self.folder)) < self.times:
            note(self.folder, "ends", index)
            ENDINGS[self.how]()
        return super().__getitem__(index)


class CrashesAsAWhole(Crashes):
    """Gives whole batches; a bad sample among them ends the worker."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class CrashesReadingInto(Crashes):
    """Writes whole batches itself; a bad sample among them ends the worker."""

    def read_into(self, indices: list[int], rows: Any) -> None:
        for row, index in enumerate(indices):
            rows[row] = self[index]


class Leaks(Numbers):
    """Keeps ``nbytes`` for every sample; tells which process made it."""

    def __init__(self, count: int, nbytes: int, begun: int = 0) -> None:
        super().__init__(count)
        self.nbytes, self.kept = nbytes, [np.ones(begun, np.uint8)]

    def __getitem__(self, index: int) -> Any:
        self.kept.append(np.ones(self.nbytes, np.uint8))
        return {"index": index, "pid": os.getpid()}


class Allocates(Numbers):
    """Sample ``bad`` takes ``nbytes`` of memory, the first ``times`` times in all workers."""

    def __init__(self, folder: str, nbytes: int, times: int, bad: int = 13) -> None:
        super().__init__(32)
        self.folder, self.nbytes, self.times, self.bad = folder, nbytes, times, bad

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and len(calls(self.folder)) < self.times:
            note(self.folder, "allocates", index)
            np.ones(self.nbytes, np.uint8)
        return index


class Unloadable(Numbers):
    """Cannot be made again where it is sent to."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise OSError("no such mount in this process")


class SlowAtFirst(Numbers):
    """The first sample of each worker takes long, as one does that imports what it needs."""

    def __init__(self, count: int, seconds: float) -> None:
        super().__init__(count)
        self.seconds = seconds

    def __getitem__(self, index: int) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
            self.seconds = 0.0
        return index


class SlowToBuild(Numbers):
    def __init__(self, folder: str, seconds: float, count: int = 32) -> None:
        super().__init__(count)
        note(folder, "init")
        time.sleep(seconds)


def end_here(how: str | None) -> None:
    """Ends this process, if ``how`` says how."""
    if how == "exit":
        os._exit(0)
    elif how == "abort":
        os.abort()
    elif how is not None:
        os.kill(os.getpid(), signal.Signals[how])


def read_beyond_a_file() -> None:
    """A file in memory that is shortened behind its reader's back, as one on a network may be."""
    fd = os.memfd_create("short")
    os.ftruncate(fd, mmap.PAGESIZE)
    with mmap.mmap(fd, mmap.PAGESIZE) as mapping:
        os.ftruncate(fd, 0)
        mapping[0]


def signalled(number: signal.Signals) -> Callable[[], object]:
    return lambda: os.kill(os.getpid(), number)


#: How a sample may end its worker: by leaving, by an error of C code, or as the processor would say it.
ENDINGS: dict[str, Callable[[], object]] = {
    "exit 0": lambda: os._exit(0),
    "exit 1": lambda: os._exit(1),
    "sys.exit": lambda: sys.exit(3),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "SIGABRT": os.abort,
    "SIGBUS": read_beyond_a_file,
    "SIGFPE": signalled(signal.SIGFPE),
    "SIGILL": signalled(signal.SIGILL),
}


def raises_early(_info: object) -> None:
    raise OSError("no device in this worker")


def leaves_early(_info: object) -> None:
    raise SystemExit(7)
