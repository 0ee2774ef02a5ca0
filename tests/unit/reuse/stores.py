"""Stores in a folder, as tests want them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader.reuse import entry, index
from swift_loader.reuse.files import Disk, open_files
from swift_loader.reuse.index import Origin
from swift_loader.reuse.store import MISSING, Store

ARENA_NBYTES = 1 << 16


def origin(samples: int = 40, version: str = "") -> Origin:
    return Origin("tests.Some", "0", version, samples)


def no_class(name: str) -> Any:
    raise AttributeError(name)


def opened(folder: Path, samples: int = 40, *, most_nbytes: int | None = None, maps: bool = True) -> Store:
    """A store in a folder: that which is there, or a new one."""
    files = open_files(Disk(f"{folder}/kept"), origin(samples), ARENA_NBYTES)
    return Store(files, no_class, most_nbytes=most_nbytes, maps=maps, wait_s=1.0)


def sample(number: int, generation: int = 0) -> dict[str, Any]:
    """Arrays, a number and a flag: what has a form."""
    return {"x": np.full((7, 5), number + 100 * generation, np.int16), "i": number, "f": number % 2 == 0}


def text(number: int, generation: int = 0) -> tuple[str, Any]:
    """What is pickled: a text, and an array of a length of its own."""
    return f"sample {number} of {generation}", np.arange(10 * (number + 1) + 7 * generation)


def keep(store: Store, number: int, made_for: int, value: Any) -> bool:
    """As a worker does."""
    assert store.lock(number)
    try:
        return store.keep(number, made_for, value, made_for)
    finally:
        store.unlock(number)


def same(one: Any, other: Any) -> bool:
    """Whether two samples are the same, types included."""
    if one is MISSING or other is MISSING or type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "dtype"):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    return bool(one == other)


def flip(path: Path, bit: int) -> None:
    """Turns one bit of a file round."""
    fd = os.open(path, os.O_RDWR)
    try:
        byte = os.pread(fd, 1, bit // 8)[0]
        os.pwrite(fd, bytes((byte ^ 1 << bit % 8,)), bit // 8)
    finally:
        os.close(fd)


def entry_bits(samples: int) -> range:
    """The bits of the entries of a store's index."""
    return range(8 * index.ENTRIES, 8 * (index.ENTRIES + entry.NBYTES * samples))
