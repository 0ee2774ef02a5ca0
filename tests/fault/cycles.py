"""Loaders that are started and closed again and again, most with a fault in between, and what is left of them.

    python -m tests.fault.cycles 200 [--seed 1]

Prints one JSON object for each twentieth part: what there is of descriptors, threads, children, names in shared memory,
and memory of the process's own. The first line is taken after some cycles of every kind: caches and pools have then
been filled.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from swift_loader import SwiftLoader, SwiftLoaderError
from swift_loader.engines.nursery import shared
from tests.datasets import CannotBeBuilt, Failing, Numbers, Pictures, private_nbytes
from tests.watching import until

#: fork takes the least time: of twenty cycles, one each is done with another method.
METHODS = ("forkserver", *["fork"] * 9, "spawn", *["fork"] * 9)


def whole_epoch(loader: SwiftLoader) -> None:
    assert sum(1 for _ in loader) == 4


def mid_epoch(loader: SwiftLoader) -> None:
    next(iter(loader))


def kept_batch(loader: SwiftLoader) -> None:
    kept.append(next(iter(loader)))
    del kept[:-2]


def killed(loader: SwiftLoader) -> None:
    iterator = iter(loader)
    next(iterator)
    os.kill(loader.worker_pids[0], signal.SIGKILL)
    assert sum(1 for _ in iterator) == 3


def raises(loader: SwiftLoader) -> None:
    with suppress(SwiftLoaderError):
        whole_epoch(loader)
        raise AssertionError("sample 5 raises")


def dropped(loader: SwiftLoader) -> None:
    """It is not even closed."""
    next(iter(loader))


kept: list[Any] = []
ACTIONS: list[tuple[Callable[[SwiftLoader], None], type, dict[str, Any]]] = [
    (whole_epoch, Numbers, {"count": 16}),
    (mid_epoch, Pictures, {"count": 16}),
    (killed, Numbers, {"count": 16}),
    (raises, Failing, {"count": 16}),
    (kept_batch, Pictures, {"count": 16}),
    (dropped, Numbers, {"count": 16}),
    (raises, CannotBeBuilt, {}),
]


def cycle(number: int, chance: random.Random) -> None:
    """Starts a loader, does something to it, and closes it."""
    action, dataset, kwargs = ACTIONS[number % len(ACTIONS)]
    method = METHODS[number % len(METHODS)]
    loader = SwiftLoader(dataset, kwargs, 4, 1, 1, seed=chance.randrange(1 << 30), start_method=method, validate=False)
    with suppress(SwiftLoaderError):
        loader.start(0)
        action(loader)
    if action is not dropped:
        loader.close()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del loader
    until(lambda: threading.active_count() == 1 and not children(), "the end of a forgotten loader")


def children() -> list[str]:
    """But for the server that all loaders of the process share."""
    me, servers = os.getpid(), set(map(str, shared.pids))
    return [pid for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split() if pid not in servers]


def picture() -> dict[str, Any]:
    """What there is now."""
    kept.clear()
    gc.collect()
    gc.collect()  # what a failed start leaves is a circle through its traceback, with finalizers in it
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "children": len(children()),
        "private_nbytes": private_nbytes(),
    }


def pictures(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """A picture after each twentieth of ``count`` cycles."""
    chance = random.Random(seed)
    begun = time.monotonic()
    numbers = itertools.count()
    for _ in range(len(METHODS)):
        cycle(next(numbers), chance)
    every = max(1, count // 20)
    for done in range(0, count, every):
        yield {"cycles": done, "seconds": round(time.monotonic() - begun, 2), **picture()}
        for _ in range(every):
            cycle(next(numbers), chance)
    yield {"cycles": count, "seconds": round(time.monotonic() - begun, 2), **picture()}


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for one in pictures(asked.count, asked.seed):
        print(json.dumps(one), flush=True)


if __name__ == "__main__":
    sys.exit(main())
