"""Datasets whose length lies. Imports nothing that workers would wait for."""

from __future__ import annotations

import os
from typing import Any

from swift_loader import worker_info
from tests.datasets import Numbers


class SaysLength:
    """Has 12 samples and a length of its own."""

    def __init__(self, length: Any) -> None:
        self.length = length
        self.samples = list(range(12))

    def __len__(self) -> int:
        if isinstance(self.length, type):
            raise self.length("no length today")
        return self.length  # type: ignore[no-any-return]

    def __getitem__(self, index: int) -> int:
        return self.samples[index]


class Grows(Numbers):
    """Another length in each process, and at each call."""

    def __len__(self) -> int:
        info = worker_info()
        self.count += 1
        return self.count + (0 if info is None else 10 * info.worker)


class LengthOfFolder(Numbers):
    def __init__(self, folder: str) -> None:
        super().__init__(int(os.listdir(folder)[0]))
