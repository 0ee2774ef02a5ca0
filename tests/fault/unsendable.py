"""Datasets whose samples cannot be sent, crash, or are too large. Imports nothing that workers would wait for."""

from __future__ import annotations

import ctypes
import io
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.datasets import Numbers, calls, note
from tests.traced import Traced

#: What cannot be sent, and its type's name.
THINGS: dict[str, Callable[[], Any]] = {
    "function": lambda: lambda: 5,
    "generator": lambda: (i for i in range(3)),
    "TextIOWrapper": lambda: sys.__stderr__,
    "BufferedReader": lambda: io.BufferedReader(io.BytesIO()),
    "lock": threading.Lock,
    "RLock": threading.RLock,
    "socket": lambda: socket.socket.__new__(socket.socket),
}
#: Sent by dill; the default collate has no place for it all the same.
SENT = ("function",)


class Meta(NamedTuple):
    open: Any
    number: int = 0


#: Ways to put a thing into a sample, and how the way to it is written.
NESTS: dict[str, Callable[[Any], Any]] = {
    "['meta']['open']": lambda thing: {"number": 1, "meta": {"name": "a", "open": thing}},
    "[1][0]": lambda thing: (1, [thing]),
    ".open": Meta,
    "": lambda thing: thing,
}
CASES = [(name, way) for name in THINGS for way in NESTS]


class Holds(Numbers):
    """Sample i holds a thing that cannot be sent; batches of two samples, of which the second may be good."""

    def __getitem__(self, index: int) -> Any:
        name, way = CASES[index]
        return NESTS[way](THINGS[name]())


class OpensOne(Numbers):
    """Only sample 13 holds an open file."""

    def __getitem__(self, index: int) -> Any:
        return {"i": index, "meta": {"open": THINGS["TextIOWrapper"]() if index == 13 else index}}


class InArrays(Holds):
    """Arrays of objects are sent as they are."""

    def __getitem__(self, index: int) -> Any:
        name, _ = CASES[index]
        array = np.empty((1, 2), object)
        array[0] = "fine", THINGS[name]()
        return {"x": 1.0, "meta": array}


def as_they_are(samples: list[Any]) -> list[Any]:
    return samples


class Crashes:
    """Does something when it is pickled, loaded or collected: the first ``times`` times, as ``folder`` counts."""

    def __init__(self, when: str, how: str, folder: str, times: int = 1 << 30) -> None:
        self.when, self.how, self.folder, self.times = when, how, folder, times

    def _maybe(self, when: str) -> None:
        if self.when != when or len(calls(self.folder, "crash")) >= self.times:
            return
        note(self.folder, "crash")
        if self.how == "raise":
            raise RuntimeError(f"crashes when it is {when}")
        if self.how == "segfault":
            ctypes.string_at(0)
        os._exit(41)

    def __getstate__(self) -> dict[str, Any]:
        self._maybe("pickled")
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._maybe("loaded")

    def __del__(self) -> None:
        self._maybe("collected")


class HasOne(Numbers):
    """Sample 5 crashes."""

    def __init__(self, when: str, how: str, folder: str, times: int = 1 << 30) -> None:
        super().__init__(12)
        self.crash = (when, how, folder, times)

    def __getitem__(self, index: int) -> Any:
        if index == 5 and self.crash[0] == "collected":
            Crashes(*self.crash)
        return Crashes(*self.crash) if index == 5 and self.crash[0] != "collected" else index


WIDTH = 4096


class OneIsLarge(Traced):
    """Sample 13 is three times as large as any slot that was made for the others."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        pixels = np.full(WIDTH * (32 if index == 13 else 1), index * 7 % 251, np.uint8)
        return {"index": index, "pixels": pixels}
