"""A dataset that stands still. In a file of its own, since workers import it: they need not load what the tests do."""

from __future__ import annotations

import time


class Sleeps:
    """Sample 20 takes for ever."""

    def __init__(self, count: int = 64) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        while index == 20:
            time.sleep(1)
        return index
