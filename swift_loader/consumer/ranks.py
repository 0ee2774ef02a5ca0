"""What ranks of one job agree on: the seed, and that they were given the same settings.

Through the key-value store of `torch.distributed`, never a collective: ranks may start at different times, or not at
all. Keys carry the loader's number in the order of construction, which scripts share.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import secrets
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from swift_loader.errors import ConfigError, RankMismatch
from swift_loader.telemetry import Standing

if TYPE_CHECKING:
    from swift_loader.plan.plan import Fingerprint
    from swift_loader.settings.loader import LoaderConfig

#: The verdict where no two ranks differ.
_AGREED = "agreed"
#: A rank that has not started by then is not waited for any longer.
_PATIENCE = timedelta(hours=6)
#: Of so many epochs of a consumer the others can hear.
_KEPT_EPOCHS = 4


def world() -> Any | None:
    """`torch.distributed`, if a process group is initialised."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


#: Scripts make their loaders in the same order on every rank, but for those of one consumer, which one rank may make
#: for itself alone: they are counted apart.
_ordinals: defaultdict[bool, Iterator[int]] = defaultdict(itertools.count)


def next_ordinal(consumer_count: int) -> int:
    """The number of a loader that is made now, the same on every rank."""
    return next(_ordinals[consumer_count == 1])


def agreed_seed(drawn: int, consumer_count: int, ordinal: int) -> int:
    """The seed that all ranks take: that of whoever asks first. One that is alone takes what it has drawn.

    Raises:
        ConfigError: where there is no way to agree.
    """
    distributed = world()
    if distributed is None and consumer_count == 1:
        return drawn
    # A loader of one consumer may stand on each of several ranks that work on the same batches.
    if distributed is None or (consumer_count > 1 and distributed.get_world_size() != consumer_count):
        size = (
            "no process group is initialised"
            if distributed is None
            else f"the world has {distributed.get_world_size()} ranks"
        )
        raise ConfigError(
            f"{consumer_count} consumers must draw alike, and {size}, so they cannot agree on a seed. Give seed=, the "
            f"same on every rank; or call torch.distributed.init_process_group in {consumer_count} ranks before "
            "start(); or make the loader once, before the ranks are forked or spawned, and hand it to them: it takes "
            "its seed along"
        )
    store = _store(distributed)
    kind = "one" if consumer_count == 1 else "many"  # they are counted apart
    return int(store.compare_set(f"swift_loader/{kind}/{ordinal}/seed", "", str(drawn)))


class Lot:
    """The seed of a loader: what was set, or else drawn once and carried along when the loader is pickled or forked, so
    that ranks made from it agree.
    """

    def __init__(self, config: LoaderConfig) -> None:
        self.seed = secrets.randbits(63) if config.seed is None else config.seed
        self.ordinal = next_ordinal(config.consumer_count)
        self._config = config
        self._built_by: int | None = os.getpid()

    def agreed(self) -> int:
        """The seed that all ranks take.

        Raises:
            ConfigError: where there is no way to agree.
        """
        config = self._config
        has_travelled = self._built_by != os.getpid()
        if config.seed is not None or has_travelled or (world() is None and not self._must_agree):
            return self.seed
        return agreed_seed(self.seed, config.consumer_count, self.ordinal)

    @property
    def _must_agree(self) -> bool:
        """Whether anything goes wrong where each rank draws its own: the order, or what another number of ranks is to
        make again. Else it is only random numbers in workers, and each sample of an epoch is made by one rank.
        """
        config = self._config
        draws_order = config.shuffle and config.plan is None
        return draws_order or (config.elastic and config.random_per == "sample")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_built_by": None}


class Agreement:
    """Compares this rank's settings with those of every other.

    Each rank compares itself with those that have started before it, so the later of two that differ finds it; its
    verdict is told to all. When the last has found no difference, the verdict is that there is none.
    """

    def __init__(self, consumer: int, ordinal: str, tell: Callable[[BaseException], None]) -> None:
        self._consumer = consumer
        self._prefix = f"swift_loader/{ordinal}"
        self._tell = tell
        self._thread: threading.Thread | None = None
        self._hush: Callable[[], None] = lambda: None

    def check(self, mine: Fingerprint, consumer_count: int) -> None:
        """Publishes ``mine`` and compares; what later ranks find is told by a thread that sleeps until then.

        Raises:
            RankMismatch: if a rank that has started before was set otherwise.
        """
        distributed = world()
        if distributed is None or distributed.get_world_size() == 1 or consumer_count == 1:
            return
        store, rank = _store(distributed), distributed.get_rank()
        store.set(f"{self._prefix}/rank/{rank}", json.dumps(mine))
        others = [other for other in range(distributed.get_world_size()) if other != rank]
        started = [other for other in others if store.check([f"{self._prefix}/rank/{other}"])]
        for other in started:
            theirs = json.loads(store.get(f"{self._prefix}/rank/{other}"))
            if differences := _differences(mine, rank, theirs, other):
                self._tell_all(store, others, differences)
                raise _mismatch(differences)
        if len(started) == len(others):
            self._tell_all(store, others, _AGREED)
            return
        name = f"swift-agreement-c{self._consumer}"
        # A store of its own: a wait on the shared one would hold up the process group's own use of it.
        key = f"{self._prefix}/verdict/{rank}"
        self._thread = threading.Thread(target=self._wait, args=(store.clone(), key), name=name, daemon=True)
        self._hush = lambda: store.compare_set(key, "", _AGREED)
        self._thread.start()
        # A thread that waits in the store when the interpreter ends would bring the process down with SIGABRT.
        atexit.register(self.close)

    def close(self) -> None:
        """Nobody wants to know any more: the thread ends."""
        atexit.unregister(self.close)
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            if thread.is_alive():
                self._hush()
        except Exception:  # noqa: BLE001, S110 - the store is gone: the thread hears of it too
            pass
        thread.join(1)

    def _tell_all(self, store: Any, others: list[int], verdict: str) -> None:
        for other in others:
            store.compare_set(f"{self._prefix}/verdict/{other}", "", verdict)

    def _wait(self, store: Any, key: str) -> None:
        try:
            store.wait([key], _PATIENCE)
            verdict = store.get(key).decode()
        except Exception:  # noqa: BLE001 - the job ends and its store with it, or a rank never starts
            return
        if verdict != _AGREED:
            self._tell(_mismatch(verdict))


class Figures:
    """What each consumer tells the others of its newest epoch.

    Each writes a key per epoch, and takes back those of long ago: a consumer that looks waits for what belongs to its
    own newest epoch, and takes nothing that is older for it.
    """

    def __init__(self, store: Any, prefix: str, consumer: int, consumer_count: int) -> None:
        self._store, self._prefix = store, prefix
        self._consumer, self._consumer_count = consumer, consumer_count
        self._told = 0

    @classmethod
    def of_world(cls, consumer: int, consumer_count: int, ordinal: str) -> Figures | None:
        """None where the ranks are not the consumers, or there is only one."""
        distributed = world()
        if distributed is None or consumer_count == 1 or distributed.get_world_size() != consumer_count:
            return None
        return cls(_store(distributed), f"swift_loader/{ordinal}/figures", consumer, consumer_count)

    def tell(self, mine: Standing) -> None:
        """This consumer has come to the end of an epoch. Whatever the store says to it, training goes on."""
        self._told += 1
        with contextlib.suppress(Exception):
            self._store.set(self._key(self._consumer, self._told), json.dumps(mine))
            if self._told > _KEPT_EPOCHS:
                self._store.delete_key(self._key(self._consumer, self._told - _KEPT_EPOCHS))

    def all(self, mine: Standing | None, timeout_s: float) -> list[Standing | None]:
        """Every consumer's epoch that is as new as this one's newest; None for those that did not tell of it."""
        found: list[Standing | None] = [None] * self._consumer_count
        found[self._consumer] = mine
        others = {other: self._key(other, max(1, self._told)) for other in range(self._consumer_count)}
        del others[self._consumer]
        with contextlib.suppress(Exception):  # the store is gone with its process
            # A store of its own: a wait on the shared one would hold up the process group's own use of it.
            store = self._store.clone()
            with contextlib.suppress(Exception):  # not all in time: those that are there are told of
                store.wait(list(others.values()), timedelta(seconds=timeout_s))
            for other, key in others.items():
                if store.check([key]):
                    found[other] = Standing(*json.loads(store.get(key)))
        return found

    def _key(self, consumer: int, epoch: int) -> str:
        return f"{self._prefix}/{epoch}/{consumer}"


def _differences(mine: Fingerprint, rank: int, theirs: Fingerprint, other: int) -> str:
    return "; ".join(
        f"{name} is {mine.get(name)!r} on rank {rank} and {theirs.get(name)!r} on rank {other}"
        for name in sorted({*mine, *theirs})
        if mine.get(name) != theirs.get(name)
    )


def _mismatch(differences: str) -> RankMismatch:
    return RankMismatch(
        f"{differences}: ranks of one job must be set alike, or they train on samples twice and miss others"
    )


def _store(distributed: Any) -> Any:
    return distributed.distributed_c10d._get_default_store()
