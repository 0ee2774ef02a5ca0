"""What ranks of one job agree on: the seed, and that they were given the same settings.

Through the key-value store of `torch.distributed`, never a collective: ranks may start at different times, or not at
all. Keys carry the loader's number in the order of construction, which scripts share.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from swift_loader.errors import ConfigError, RankMismatch

if TYPE_CHECKING:
    from swift_loader.plan.plan import Fingerprint

#: A rank that has not started by then is not waited for any longer.
_PATIENCE = timedelta(hours=6)


def world() -> Any | None:
    """`torch.distributed`, if a process group is initialised."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


def agreed_seed(drawn: int, consumer_count: int, ordinal: int) -> int:
    """The seed that all ranks take: that of whoever asks first.

    Raises:
        ConfigError: where there is no way to agree.
    """
    distributed = world()
    if distributed is None or distributed.get_world_size() != consumer_count:
        size = (
            "no process group is initialised"
            if distributed is None
            else f"the world has {distributed.get_world_size()}"
        )
        raise ConfigError(
            f"{consumer_count} consumers must shuffle alike, and {size}, so they cannot agree on a seed: give seed=, "
            "the same on every rank"
        )
    store = _store(distributed)
    return int(store.compare_set(f"swift_loader/{ordinal}/seed", "", str(drawn)))


class Agreement:
    """Compares this rank's settings with those of every other, each as soon as it has started."""

    def __init__(self, consumer: int, ordinal: int, tell: Callable[[BaseException], None]) -> None:
        self._consumer = consumer
        self._prefix = f"swift_loader/{ordinal}/rank"
        self._tell = tell
        self._thread: threading.Thread | None = None

    def check(self, mine: Fingerprint, consumer_count: int) -> None:
        """Publishes ``mine`` and compares; ranks that start later are compared by a thread that sleeps until then.

        Raises:
            RankMismatch: if a rank that has started before was set otherwise.
        """
        distributed = world()
        if distributed is None or distributed.get_world_size() != consumer_count or consumer_count == 1:
            return
        store = _store(distributed)
        rank = distributed.get_rank()
        store.set(f"{self._prefix}/{rank}", json.dumps({**mine, "nb_consumer": consumer_count}, sort_keys=True))
        others = [other for other in range(consumer_count) if other != rank]
        late = []
        for other in others:
            if store.check([f"{self._prefix}/{other}"]):
                self._compare(mine, other, store)
            else:
                late.append(other)
        if late:
            name = f"swift-agreement-c{self._consumer}"
            # A store of its own: a wait on the shared one would hold up the process group's own use of it.
            waiting = (mine, late, store.clone())
            self._thread = threading.Thread(target=self._wait, args=waiting, name=name, daemon=True)
            self._thread.start()

    def _wait(self, mine: Fingerprint, late: list[int], store: Any) -> None:
        for other in late:
            try:
                store.wait([f"{self._prefix}/{other}"], _PATIENCE)
                self._compare(mine, other, store)
            except RankMismatch as mismatch:
                self._tell(mismatch)
                return
            except Exception:  # noqa: BLE001 - the job ends and its store with it, or the rank never starts
                return

    def _compare(self, mine: Fingerprint, other: int, store: Any) -> None:
        theirs: dict[str, Any] = json.loads(store.get(f"{self._prefix}/{other}"))
        differences = [
            f"{name} is {mine.get(name)!r} on consumer {self._consumer} and {theirs.get(name)!r} on rank {other}"
            for name in sorted({*mine, *theirs} - {"nb_consumer"})
            if mine.get(name) != theirs.get(name)
        ]
        if differences:
            raise RankMismatch(
                f"{'; '.join(differences)}: ranks of one job must be set alike, or they train on samples twice and "
                "miss others"
            )


def _store(distributed: Any) -> Any:
    return distributed.distributed_c10d._get_default_store()
