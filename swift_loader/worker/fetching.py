"""Who fetches for a dataset that lies elsewhere: told to the consumer, which may not hold the dataset itself."""

from __future__ import annotations

import sys
from typing import Any

from swift_loader.worker.reach import reachable

#: Most datasets are of one set.
_MOST = 8


def fetching_of(dataset: Any) -> list[tuple[str, str]]:
    """Of each set in a store that a dataset reads: by which name its fetcher is found, and what it calls this job."""
    module = sys.modules.get("swift_loader.shards.remote")
    if module is None:
        return []
    found: list[tuple[str, str]] = []
    for _, value in reachable({"dataset": dataset}):
        if type(value) is module.RemoteSet and len(found) < _MOST:
            found.append((value.fetched.name, value.follower.job))
    return found
