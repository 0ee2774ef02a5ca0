"""Which rank and which of torch's workers this process is, as far as it was told: nothing of torch is loaded for it."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from swift_loader.errors import ConfigError


class Rank(NamedTuple):
    """One of the processes that train together."""

    number: int
    world: int


class TorchWorker(NamedTuple):
    """One of a DataLoader's."""

    number: int
    among: int
    seed: int | None
    """What it has in common with the others of its iteration; None where there are no workers."""


def rank_of(told: Rank | None = None) -> Rank:
    """As torch.distributed says, else as it was ``told`` by who did know, else as RANK and WORLD_SIZE say.

    Raises:
        ConfigError: if these two are wrong.
    """
    if (known := joined()) is not None:
        return known
    if told is not None:
        return told
    number, count = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not number.isdecimal() or not count.isdecimal() or int(number) >= int(count):
        raise ConfigError(f"RANK={number} and WORLD_SIZE={count} are no rank: a number from 0, below the count")
    return Rank(int(number), int(count))


def joined() -> Rank | None:
    """The rank that this process has in torch.distributed; None where it has none."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Rank(distributed.get_rank(), distributed.get_world_size())


def torch_worker() -> TorchWorker:
    """This process among the workers of a DataLoader; one of one where there is none."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return TorchWorker(0, 1, None) if info is None else TorchWorker(info.id, info.num_workers, info.seed - info.id)
