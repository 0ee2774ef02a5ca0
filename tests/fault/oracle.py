"""What a run delivered, batch by batch, and the check that it is what a run without faults delivers.

    found = record(loader, epochs=2)
    assert not differences(found, faultless(epochs=2))

One oracle for all rows of the faults, for other loaders too: it needs batches that say which samples they hold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

from swift_loader import SwiftLoader
from swift_loader.testing.oracle import Delivered, delivered, differences, record
from tests.loaders import made, started
from tests.traced import COUNT, Traced

BATCH = 8
#: How long anything may take before a test calls it a hang.
HANG_S = 60.0

__all__ = [
    "ALL_WORLDS",
    "BATCH",
    "COUNT",
    "HANG_S",
    "WORLDS",
    "Delivered",
    "Traced",
    "World",
    "delivered",
    "differences",
    "faultless",
    "in_thread",
    "record",
    "traced",
]


@dataclass(frozen=True)
class World:
    """Where a row of the faults runs."""

    method: str
    workers: int
    in_thread: bool

    def __str__(self) -> str:
        return f"{self.method}-{self.workers}{'-thread' if self.in_thread else ''}"

    @property
    def settings(self) -> dict[str, Any]:
        """What a loader is given. Short queues, so that a fault meets work that is still to be done."""
        return {
            "start_method": self.method,
            "worker_per_consumer": self.workers,
            "data_queue_size": 1,
            "message_queue_size": 1,
            "max_buffer_size": 1,
            "batch_size": BATCH,
        }

    def run(self, action: Callable[[], Any]) -> Any:
        """Runs ``action`` in the main thread, or in another; gives back what it gives, raises what it raises."""
        return in_thread(action) if self.in_thread else action()


#: Every pair of start method, worker count and thread at least once; all of them where rows run on demand. (fork is
#: refused where threads run.)
WORLDS = [
    World("forkserver", 1, in_thread=False),
    World("forkserver", 4, in_thread=True),
    World("spawn", 1, in_thread=True),
    World("spawn", 4, in_thread=False),
    World("fork", 1, in_thread=False),
    World("fork", 4, in_thread=False),
]
ALL_WORLDS = [
    World(method, workers, in_thread)
    for method, workers, in_thread in product(("forkserver", "spawn", "fork"), (1, 4), (False, True))
    if not (method == "fork" and in_thread)
]


def in_thread(action: Callable[[], Any]) -> Any:
    """Runs ``action`` in a thread of its own."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(action())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, name="row")
    thread.start()
    thread.join(HANG_S)
    assert not thread.is_alive(), f"it hangs: no end after {HANG_S} s"
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result


@contextmanager
def traced(world: World, /, count: int = COUNT, **settings: Any) -> Iterator[SwiftLoader]:
    """A started loader of `Traced` samples."""
    with started(Traced, {"count": count}, **{**world.settings, **settings}) as loader:
        yield loader


def faultless(epochs: int = 1, count: int = COUNT, dataset: Any = Traced, **settings: Any) -> list[Delivered]:
    """What `traced` delivers when nothing goes wrong: made in this process, without workers."""
    with made(dataset, {"count": count}, **{"batch_size": BATCH, "worker_per_consumer": 0, **settings}) as loader:
        loader.start(0)
        return record(loader, epochs)
