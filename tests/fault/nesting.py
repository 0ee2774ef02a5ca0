"""A dataset with a loader of its own."""

from __future__ import annotations

import torch  # noqa: F401 - a batch in which torch is loaded for the first time is made twice, and these samples only once

from swift_loader import SwiftLoader
from tests.datasets import Numbers


class Nested(Numbers):
    """Takes its samples from a loader of its own, which it never closes."""

    def __init__(self, count: int = 64) -> None:
        super().__init__(count)
        self.inner = SwiftLoader(Numbers, {"count": count}, 1, 1, 2, shuffle=False)
        self.batches = iter(self.inner)

    def __getitem__(self, index: int) -> int:
        return int(next(self.batches)[0])
