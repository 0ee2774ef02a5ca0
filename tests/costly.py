"""A dataset that one would rather not build twice. Imports nothing that workers would wait for."""

from __future__ import annotations

import weakref
from typing import ClassVar

from swift_loader import worker_info


class Costly:
    """Notes how often it was built outside of a worker."""

    here = 0
    alive: ClassVar[weakref.WeakSet[Costly]] = weakref.WeakSet()

    def __init__(self, count: int = 16) -> None:
        self.count, self.labels = count, ["even", "odd"]
        if worker_info() is None:
            type(self).here += 1
            self.alive.add(self)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return index

    def __contains__(self, value: object) -> bool:
        return value == "everything"

    def __repr__(self) -> str:
        return f"Costly of {self.count}"
