"""Runs loaders for short looks: at most two are alive, so that two choices can be looked at in turns.

A loader whose turn it is not fills its queues, which is waited for, and then does nothing. When its turn comes the
batches that lie ready are taken first: how long they last says how long it stood still, not how fast it is.

Any number of workers makes the same batches, each time. Threads do not where samples draw from generators that threads
share, or where they use something of the dataset's together, such as an open file: then threads cannot be had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from threading import Thread
from time import monotonic, perf_counter, sleep
from typing import Any, Protocol

from swift_loader.batch.digest import checksum_of_all
from swift_loader.errors import ConfigError, DataError, SwiftLoaderError
from swift_loader.host.load import Load, load_of
from swift_loader.tuning.looks import Choice, Failure, Look

#: A batch that took so long to come was not lying ready.
_READY_S = 0.5e-3
#: A worker that has made no batch by then has none to make: there are more workers than the loader finds work for.
_WARM_S = 20.0
_CLOSING_S = 10.0
#: A loader is at rest when its workers used less than a tenth of a core for so long; that is waited for up to so long.
_GLANCE_S, _RESTLESS, _SETTLING_S = 0.05, 0.1, 2.0
#: So many of a loader's first batches are compared.
_COMPARED = 4
_OTHER_SAMPLES = (
    "they make other samples each time: they draw from random generators that threads share (draw from "
    "swift_loader.worker_info().rng), or disturb each other; `swift-loader check` tells"
)
_MADE = ("fetch_s", "collate_s", "encode_s")


class Running(Protocol):
    """A loader that was started."""

    def __iter__(self) -> Iterator[Any]: ...

    def statistics(self) -> dict[str, float]: ...

    @property
    def worker_pids(self) -> list[int]: ...

    def close(self) -> None: ...


Start = Callable[[Choice], Running]

#: So many loaders are started at a time.
_MOST_ALIVE = 2


class Rig:
    """Starts loaders, looks at them, closes them.

    Args:
        start: Makes a loader with these counts and starts it.
        consumer_s: How long the consumer is busy with a batch.
        compares: Whether the batches of two loaders can be compared, since they come in order.
    """

    def __init__(self, start: Start, consumer_s: float, *, compares: bool = True) -> None:
        self._start = start
        self._consumer_s = consumer_s
        self._alive: dict[Choice, _Alive] = {}
        self._has_looked = False
        self._compares = compares
        self._alone: Counter[tuple[int, ...]] = Counter()
        """What the first batches of loaders without threads were."""
        self._seen_twice: set[tuple[int, ...]] = set()
        """And of those with threads."""

    def look(
        self, choice: Choice, seconds: float, *, is_hurried: bool = False, beside: Choice | None = None
    ) -> Look | Failure:
        """Looks for about so long; the loader is started if it is not alive, and another but ``beside`` closed for it.

        Raises:
            SwiftLoaderError: what the loader says of a dataset that raises, or of the first choice of all.
        """
        try:
            if choice.threads > 1 and not self._is_reproducible(choice, beside):
                self._end(choice)
                return Failure(_OTHER_SAMPLES)
            alive = self._alive.get(choice) or self._begun(choice, beside)
            self._let_others_settle(choice)
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
            if len(self._alive) >= _MOST_ALIVE and other != beside:
                self._end(other)
        alive = self._alive[choice] = _Alive(self._start(choice), choice)
        alive.warm_up()
        if choice.threads == 1:
            self._alone[alive.first] += 1
        return alive

    def _let_others_settle(self, choice: Choice) -> None:
        pids = [pid for other, alive in self._alive.items() if other != choice for pid in alive.loader.worker_pids]
        if not pids:
            return
        end, used_s = monotonic() + _SETTLING_S, load_of(pids).cpu_s
        while monotonic() < end:
            sleep(_GLANCE_S)
            before_s, used_s = used_s, load_of(pids).cpu_s
            if used_s - before_s < _RESTLESS * _GLANCE_S:
                return

    def _is_reproducible(self, choice: Choice, beside: Choice | None) -> bool:
        """Whether threads make the same batches each time; true also where samples are not the same without them."""
        first = (self._alive.get(choice) or self._begun(choice, beside)).first
        if not self._compares or first in self._alone or first in self._seen_twice or len(self._alone) > 1:
            return True
        self._end(choice)
        if self._begun(choice, beside).first == first:
            self._seen_twice.add(first)
            return True
        self._end(choice)
        if self._alone.total() == 1:
            alone = choice._replace(threads=1)
            self._end(alone)
            self._begun(alone, None)
            self._end(alone)
        return len(self._alone) > 1

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
        self.first: tuple[int, ...] = ()
        """Stands for its first batches."""

    def warm_up(self) -> None:
        """Until every worker has made a batch, and each its slots."""
        self.first = tuple(checksum_of_all(next(self._batches)) for _ in range(_COMPARED))
        end, taken = monotonic() + _WARM_S, _COMPARED
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
        is_empty = True
        for batch in loader:
            is_empty = False
            yield batch
        if is_empty:
            raise ConfigError("there is nothing to tune: with these settings an epoch has no batch")
