"""Runs loaders for short looks: at most two are alive, so that two choices can be looked at in turns.

A loader whose turn it is not holds its queues full and does nothing. When its turn comes the batches that lie ready are
taken first: how long they last says how long it stood still, not how fast it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from time import monotonic, perf_counter, sleep
from typing import Any, Protocol

from swift_loader.errors import DataError, SwiftLoaderError
from swift_loader.tuning.load import Load, load_of
from swift_loader.tuning.looks import Choice, Failure, Look

#: A batch that took so long to come was not lying ready.
_READY_S = 0.5e-3
#: A worker that has made no batch by then has none to make: there are more workers than the loader finds work for.
_WARM_S = 20.0
_CLOSING_S = 10.0
_MADE = ("fetch_s", "collate_s", "encode_s")


class Running(Protocol):
    """A loader that was started."""

    def __iter__(self) -> Iterator[Any]: ...

    def statistics(self) -> dict[str, float]: ...

    @property
    def worker_pids(self) -> list[int]: ...

    def close(self) -> None: ...


Start = Callable[[Choice], Running]


class Rig:
    """Starts loaders, looks at them, closes them.

    Args:
        start: Makes a loader with these counts and starts it.
        consumer_s: How long the consumer is busy with a batch.
        most_alive: How many loaders may be started at a time.
    """

    def __init__(self, start: Start, consumer_s: float, most_alive: int = 2) -> None:
        self._start = start
        self._consumer_s = consumer_s
        self._most_alive = most_alive
        self._alive: dict[Choice, _Alive] = {}
        self._has_looked = False

    def look(
        self, choice: Choice, seconds: float, *, is_hurried: bool = False, beside: Choice | None = None
    ) -> Look | Failure:
        """Looks for about so long; the loader is started if it is not alive, and another but ``beside`` closed for it.

        Raises:
            SwiftLoaderError: what the loader says of a dataset that raises, or of the first choice of all.
        """
        try:
            alive = self._alive.get(choice) or self._begun(choice, beside)
            look = alive.look(0.0 if is_hurried else self._consumer_s, seconds)
            self._has_looked = True
            return look
        except SwiftLoaderError as error:
            if not self._has_looked or (isinstance(error, DataError) and choice.threads == 1):
                raise
            self._end(choice)
            return Failure(str(error).partition("\n")[0])

    def close(self) -> None:
        """Closes what is alive, at the same time: a worker in the middle of a batch is given half a second."""
        loaders = [alive.loader for alive in self._alive.values()]
        closers = [Thread(target=loader.close, name="swift-closer", daemon=True) for loader in loaders[1:]]
        for closer in closers:
            closer.start()
        for loader in loaders[:1]:
            loader.close()
        for closer in closers:
            closer.join(timeout=_CLOSING_S)
        self._alive.clear()

    def _begun(self, choice: Choice, beside: Choice | None) -> _Alive:
        for other in list(self._alive):
            if len(self._alive) >= self._most_alive and (other != beside or self._most_alive == 1):
                self._end(other)
        alive = self._alive[choice] = _Alive(self._start(choice), choice)
        alive.warm_up()
        return alive

    def _end(self, choice: Choice) -> None:
        if choice in self._alive:
            self._alive[choice].loader.close()  # first: whatever interrupts this, it is still known
            del self._alive[choice]


class _Alive:
    """One loader, without end."""

    def __init__(self, loader: Running, choice: Choice) -> None:
        self.loader = loader
        self._choice = choice
        self._batches = _for_ever(loader)

    def warm_up(self) -> None:
        """Until every worker has made a batch, and each its slots."""
        end, taken = monotonic() + _WARM_S, 0
        while taken < 2 * self._choice.workers or self._is_cold():
            next(self._batches)
            taken += 1
            if monotonic() > end:
                return

    def look(self, consumer_s: float, seconds: float) -> Look:
        """Takes batches for so long, and is busy with each for ``consumer_s``."""
        self._drain(seconds / 2)
        pids = self.loader.worker_pids
        before, load = self.loader.statistics(), load_of(pids)
        begun = perf_counter()
        count, wait_s, last = 0, 0.0, begun
        while last - begun < seconds or count < 2:
            if consumer_s:
                sleep(consumer_s)
            asked = perf_counter()
            next(self._batches)
            last = perf_counter()
            wait_s += last - asked
            count += 1
        return self._told(Look(count, last - begun, wait_s, 0.0), before, load, load_of(pids))

    def _told(self, look: Look, before: dict[str, float], earlier: Load, later: Load) -> Look:
        after = self.loader.statistics()
        return look._replace(
            made_s=sum(after[name] - before[name] for name in _MADE),
            samples=int(after["samples"] - before["samples"]),
            cpu_s=max(0.0, later.cpu_s - earlier.cpu_s),
            queued_s=max(0.0, later.queued_s - earlier.queued_s),
            worker_nbytes=later.nbytes,
        )

    def _is_cold(self) -> bool:
        statistics = self.loader.statistics()
        return statistics.get("workers_warm", self._choice.workers) < self._choice.workers

    def _drain(self, seconds: float) -> None:
        """Takes what lies ready, and one batch more."""
        end = perf_counter() + seconds
        while True:
            asked = perf_counter()
            next(self._batches)
            came = perf_counter()
            if came - asked > _READY_S or came > end:
                return


def _for_ever(loader: Running) -> Iterator[Any]:
    while True:
        for _ in loader:
            yield None
