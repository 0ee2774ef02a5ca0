"""Datasets of the faults. It imports nothing that workers do not have anyway, so that they start quickly."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


class Worked:
    """Samples that say who they are, draw random numbers, and take a while of a processor's time."""

    def __init__(self, count: int, work_s: float = 0.0, *, augment: bool = True) -> None:
        self.count, self.work_s, self.augment = count, work_s, augment

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        until_s = time.thread_time() + self.work_s
        while time.thread_time() < until_s:
            pass
        noise = random.random() + np.random.random() if self.augment else 0.0  # noqa: NPY002 - as datasets do
        return {"index": index, "noise": noise, "pixels": np.full((3, 8), index * 7 % 251, np.uint8)}


class Signed:
    """Samples that tell which process made them, without end, some 0.2 ms each."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> int:
        time.sleep(0.0002)
        return os.getpid()


class Occupied:
    """The first ``free`` samples come at once, all others never: workers sleep, are busy, or sit in a C call."""

    def __init__(self, how: str = "idle", free: int = 8) -> None:
        self.how, self.free = how, free

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        if index >= self.free and self.how == "sleep":
            time.sleep(1e6)
        elif index >= self.free and self.how == "C loop":
            re.match("(a+)+$", "a" * 64 + "b")  # holds the interpreter lock until the end of time
        while index >= self.free and self.how in ("busy", "close"):
            pass
        return np.full(64, index % 251, np.uint8)


def leave_when_told(_: object) -> None:
    """In a worker: two signals end it with an exit code."""
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    signal.signal(signal.SIGUSR2, lambda *_: os._exit(1))


class TakesTwoWords(Exception):
    """Cannot be made again from what pickle keeps of it."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


class HasNoWords(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Hit(Worked):
    """At sample 13 something happens, the first ``times`` times in all workers, and a file in ``folder`` says when.

    ``how`` is one of: exit 0, exit 1, segfault, sleep, C loop, raise, odd error, wordless error, huge error,
    generator, large, shape, dtype.
    """

    BAD = 13

    def __init__(self, how: str, folder: str, count: int = 160, times: int = 1 << 30) -> None:
        super().__init__(count, 0.001, augment=False)
        self.how, self.folder, self.times = how, folder, times

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = super().__getitem__(index)
        if index == self.BAD and self._is_due():
            if self.how in ("raise", "odd error", "wordless error", "huge error"):
                self._raise()
            elif self.how in ("generator", "large", "shape", "dtype"):
                return self._changed(sample)
            self._end_or_hang()
        return sample

    def _is_due(self) -> bool:
        for number in range(min(self.times, 10)):
            try:
                with (Path(self.folder) / str(number)).open("x", encoding="ascii") as file:
                    file.write(str(time.monotonic()))
                return True
            except FileExistsError:
                continue
        return self.times > 10

    def _end_or_hang(self) -> None:
        if self.how == "segfault":
            ctypes.string_at(0)
        elif self.how == "sleep":
            time.sleep(1e6)
        elif self.how == "C loop":
            re.match("(a+)+$", "a" * 64 + "b")
        os._exit(0 if self.how == "exit 0" else 1)

    def _raise(self) -> None:
        if self.how == "odd error":
            raise TakesTwoWords("no such", "picture")
        if self.how == "wordless error":
            raise HasNoWords
        raise ValueError("x" * 100_000_000 if self.how == "huge error" else "no such picture")

    def _changed(self, sample: dict[str, Any]) -> dict[str, Any]:
        if self.how == "generator":
            return {**sample, "extra": (number for number in range(3))}
        pixels = sample["pixels"]
        changed = {"large": np.tile(pixels, (3, 1)), "shape": pixels.T, "dtype": pixels.astype(np.float64) + 0.5}
        return {**sample, "pixels": changed[self.how]}


def keep_extras(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A collate function that passes on what it does not know."""
    batch: dict[str, Any] = {key: np.stack([sample[key] for sample in samples]) for key in ("index", "noise", "pixels")}
    extras = [sample["extra"] for sample in samples if "extra" in sample]
    return {**batch, "extra": extras} if extras else batch


class Pictures(Worked):
    """Samples of half a megabyte."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "pixels": np.full(1 << 19, index % 251, np.uint8)}
