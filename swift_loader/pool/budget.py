"""How many slots a consumer may have: by the memory that they take, and by open files, of which each takes two here."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from swift_loader.errors import ConfigError
from swift_loader.host.memory import RESERVE_NBYTES, free_nbytes, limited
from swift_loader.host.warn import warn_user
from swift_loader.wire.page import MAX_SLOTS

#: The limit is raised to what the system allows, but not above this: some programs close all numbers up to the limit.
_ENOUGH = 1 << 16
#: Of each worker: channel, pidfd, both ends of the lifeline, stacks, bell.
_OF_WORKER = 6
#: Of the pool: its page, its bell, the payload, the fork server, and what a process that starts needs for a moment.
_OF_POOL = 16
_OF_SLOT = 2
#: A slot for every worker to fill, one to hand out, one that the user holds.
_SPARE_SLOTS = 3
#: What is left to the user: a quarter, or this.
_MOST_LEFT = 1024


def budget_of(asked: int | None, consumer_count: int) -> int:
    """What slots may take: what was asked for, as far as it is there, or half of what is free for each rank here."""
    if asked is None:
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or consumer_count)
        return max(1, free_nbytes() // 2 // max(1, ranks))
    free = max(1, free_nbytes() - RESERVE_NBYTES)
    if asked > free:
        warn_user(
            f"memory_budget={asked:,} is more than the {free:,} bytes that are free here{limited()}, so {free:,} it "
            "is: there will be fewer batches ahead. Give the job more memory, or memory_budget less"
        )
    return min(asked, free)


def slots_allowed(worker_count: int) -> int:
    """Raises the soft limit, and gives back how many slots a loader with so many workers may have.

    Raises:
        ConfigError: if that is too few to work with.
    """
    limit, taken = _raised(), _taken(worker_count)
    left_to_user = min(limit // 4, _MOST_LEFT)
    slots = min(MAX_SLOTS, (limit - left_to_user - taken) // _OF_SLOT)
    if slots < worker_count + _SPARE_SLOTS:
        needed = files_needed(worker_count)
        raise ConfigError(
            f"{worker_count} workers need a limit of {needed} open files, and it is {limit}, which is all that the "
            f"system allows this process: raise the hard limit (ulimit -Hn {needed}; LimitNOFILE= of a service; "
            "--ulimit nofile= of a container), or take fewer workers"
        )
    return slots


def files_needed(worker_count: int) -> int:
    """The least limit with which a loader of so many workers starts in this process."""
    return (_taken(worker_count) + _OF_SLOT * (worker_count + _SPARE_SLOTS)) * 4 // 3 + 1


def _taken(worker_count: int) -> int:
    return _open_count() + _OF_POOL + _OF_WORKER * worker_count


def _raised() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft


def _open_count() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:  # no /proc here
        return 64
