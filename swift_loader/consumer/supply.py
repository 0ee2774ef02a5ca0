"""What was fetched for a dataset that lies elsewhere, since its loader was started: requests, bytes, what they cost.

Fetchers count for all trainings of a host; of this consumer they tell what came for it, what its batches want, and how
long they waited. A thread asks now and then, for those who look on while the loader runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic, perf_counter_ns
from typing import Any

from swift_loader.errors import SwiftLoaderError
from swift_loader.host.warn import warn_user
from swift_loader.stores.watching import counted
from swift_loader.worker.fetching import fetching_of

#: What of it is told, by the names of `statistics()`.
_TOLD = (
    "requests", "nbytes", "retries", "hedges", "refetches", "renewals", "runs", "ranges", "ranges_nbytes", "hits_kept",
    "hits_memory", "kept_nbytes", "waits", "wait_s", "asking_s", "egress_usd",
)  # fmt: skip
_TOLD_OF_RANK = ("nbytes", "waits", "wait_s", "wanted_nbytes", "working_s")
#: What a million of requests that read costs, where most rent their buckets.
_DOLLARS_PER_REQUEST = 0.4e-6
_PAUSE_S, _END_S = 1.0, 3.0


class _Sum:
    """Numbers that only grow, of a process that may be followed by another one, which begins at nothing.

    Args:
        is_new: What is counted the first time counts: there was nothing before.
    """

    def __init__(self, *, is_new: bool = False) -> None:
        self._is_new = is_new
        self.total: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._pid: Any = None

    def add(self, pid: Any, now: Mapping[str, float]) -> None:
        """What is counted now."""
        if self._pid != pid:
            self._last = dict(now) if self._pid is None and not self._is_new else {}
        for name, value in now.items():
            self.total[name] = self.total.get(name, 0.0) + max(0.0, value - self._last.get(name, 0.0))
        self._pid, self._last = pid, dict(now)


class Supply:
    """What fetchers tell of one consumer's dataset; there is nothing where nothing is fetched for it.

    Args:
        dataset: As the trainer holds it; None where workers build it.
        consumer: Whose share is told apart.
        workers: How many make its batches.
        tell: Is told of all figures, now and then, and when that was.
    """

    def __init__(
        self,
        dataset: Any,
        consumer: int = 0,
        workers: int = 1,
        tell: Callable[[int, Mapping[str, float]], object] = lambda _at_ns, _figures: None,
    ) -> None:
        ask = getattr(dataset, "store_statistics", None)
        self._ask: Callable[[], Mapping[str, Any] | None] | None = ask if callable(ask) else None
        self._consumer, self._workers, self._tell = consumer, max(1, workers), tell
        self._fetching: list[tuple[str, str]] = []
        self._host: dict[str, _Sum] = {}
        self._rank: dict[tuple[str, str], _Sum] = {}
        self._begun_s = monotonic()
        self._epoch = self._begun_s, 0.0
        self._warnings: dict[str, bool] = {}
        """What fetchers warn of, and whether the user was told."""
        self._asking = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if dataset is not None:
            self._fetching = fetching_of(dataset)
            self._look()

    def begin(self, fetching: Collection[tuple[str, str]] = ()) -> None:
        """The first batch is there.

        Args:
            fetching: Of datasets that workers have built: by which names the fetchers are found, and know of them.
        """
        for one in sorted({*fetching} - {*self._fetching}):
            self._fetching.append(one)
            self._rank[one] = _Sum(is_new=True)
        self._look()
        self._warn()
        if self._host:
            self._tell(perf_counter_ns(), self._figures())
            name = f"swift-supply-c{self._consumer}"
            self._thread = threading.Thread(target=self._go_on, name=name, daemon=True)
            self._thread.start()

    def begin_epoch(self) -> None:
        """From here on counts how long the epoch's batches waited."""
        if self._host:
            self._look()
            self._epoch = monotonic(), self._of_rank("wait_s")

    def figures(self) -> dict[str, float]:
        """Since the loader was started, as `statistics()` has it; of this host, and what is named so of this rank."""
        if not self._host:
            return {}
        self._look()
        self._warn()
        return self._figures()

    def close(self) -> None:
        """Nobody looks on any more; may be called twice."""
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_END_S)
            self._look()
            self._tell(perf_counter_ns(), self._figures())

    def _go_on(self) -> None:
        while not self._over.wait(_PAUSE_S):
            self._look()
            self._tell(perf_counter_ns(), self._figures())

    def _figures(self) -> dict[str, float]:
        now_s = monotonic()
        host = {name: sum(one.total.get(name, 0.0) for one in list(self._host.values())) for name in _TOLD}
        rank = {name: self._of_rank(name) for name in _TOLD_OF_RANK}
        epoch_s, waited_before_s = self._epoch
        waited_s = rank["wait_s"] - waited_before_s
        return {
            **{f"store_{name}": value for name, value in host.items()},
            "store_bytes_per_s": host["nbytes"] / max(1e-3, now_s - self._begun_s),
            "store_dollars": host["requests"] * _DOLLARS_PER_REQUEST + host["egress_usd"],
            "store_given_bytes_per_s": host["nbytes"] / host["asking_s"] if host["asking_s"] else 0.0,
            "store_rank_nbytes": rank["nbytes"],
            "store_rank_waits": rank["waits"],
            "store_rank_wait_s": rank["wait_s"],
            "store_rank_wanted_nbytes": rank["wanted_nbytes"],
            "store_wanted_bytes_per_s": self._wanted(rank),
            "store_waited_share": min(1.0, waited_s / max(1e-3, (now_s - epoch_s) * self._workers)),
        }

    def _wanted(self, rank: Mapping[str, float]) -> float:
        """What the batches would take in a second, did none wait for the store."""
        return self._workers * rank["wanted_nbytes"] / rank["working_s"] if rank["working_s"] else 0.0

    def _of_rank(self, name: str) -> float:
        return sum(one.total.get(name, 0.0) for one in list(self._rank.values()))

    def _look(self) -> None:
        with self._asking:
            for name in sorted({name for name, _ in self._fetching}):
                said = counted(name)
                for job in [job for other, job in self._fetching if other == name]:
                    mine = said.get("consumers", {}).get(f"{job}-{self._consumer}", {})
                    self._add(self._rank.setdefault((name, job), _Sum()), said, mine, _TOLD_OF_RANK)
                self._add_host(name, said)
            if self._ask is not None and not self._fetching:
                try:
                    self._add_host("", self._ask() or {})
                except (SwiftLoaderError, OSError):  # what only looks on breaks nothing
                    pass

    def _add_host(self, name: str, said: Mapping[str, Any]) -> None:
        if said:
            self._add(self._host.setdefault(name, _Sum()), said, said, _TOLD)
        for warning in said.get("warnings", ()):
            self._warnings.setdefault(warning, False)

    def _warn(self) -> None:
        for warning in [text for text, is_told in self._warnings.items() if not is_told]:
            self._warnings[warning] = True
            warn_user(warning)

    @staticmethod
    def _add(to: _Sum, said: Mapping[str, Any], counts: Mapping[str, Any], names: Sequence[str]) -> None:
        if said:
            to.add(said.get("pid"), {name: float(counts.get(name, 0.0)) for name in names})
