"""Datasets that want memory, and a worker that may not have it. Nothing here imports torch."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import numpy as np

from tests.datasets import Numbers


class Large(Numbers):
    """Sample i is some megabytes that tell its number."""

    def __init__(self, count: int = 24, nbytes: int = 3 << 20) -> None:
        super().__init__(count)
        self.nbytes = nbytes

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "pixels": np.full(self.nbytes, index * 7 % 251, np.uint8)}


class Hungry(Numbers):
    """Sample 13 wants a gigabyte: as an array, as bytes, or as a part of its batch."""

    def __init__(self, how: str, count: int = 32) -> None:
        super().__init__(count)
        self.how = how

    def __getitem__(self, index: int) -> Any:
        if index != 13:
            return np.zeros(8, np.uint8)
        if self.how == "bytes":
            bytearray(1 << 30)
        return np.ones(1 << 30, np.uint8)


def few_addresses(_info: object) -> None:
    """For a worker to begin with: it may take half a gigabyte of addresses more than it has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + (512 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
