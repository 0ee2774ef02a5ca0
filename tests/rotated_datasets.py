"""What the tests of rotation give to workers: nothing here imports torch."""

from __future__ import annotations

import resource

from tests.datasets import Random


class Drawing(Random):
    """Sample i is i, and what the generators say when it is made."""

    def __getitem__(self, index: int):
        sample = super().__getitem__(index)
        return {"i": index, "drawn": sample["drawn"], "epoch": sample["epoch"]}


def small_files(_info: object) -> None:
    """A `worker_init`: no file may grow larger than this."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
