"""What `swift-loader top` is shown of one loader: counted by the consumer's thread, posted a few times a second.

Whoever comes by posts: the consumer's thread when it is handed a batch, and the telecom threads while anything is being
made, so that a loader whose consumer is stuck shows that too. Costs a few additions for each batch.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from swift_loader.telemetry.board import Board, Shown

if TYPE_CHECKING:
    from swift_loader.pool.view import View
    from swift_loader.wire.recipe import Recipe

_PAUSE_NS = 400_000_000
#: Rates are of so many posts, which are ten seconds.
_RECENT_POSTS = 25
_LAST, _LAST_LENGTH = 3, 300
_NS = 1e9


class _Counts(NamedTuple):
    at_ns: int
    batches: int
    samples: int
    nbytes: int
    wait_ns: int


class Live:
    """One loader, as it is shown."""

    def __init__(self, recipe: Recipe, view: View | None) -> None:
        self._recipe = recipe
        self._board = Board()
        self._view = view
        self._began_ns = perf_counter_ns()
        self._batches = self._samples = self._nbytes = self._wait_ns = 0
        self._epoch = self._step = self._step_count = 0
        self._store = ""
        self._asked_ns = 0
        self._handed_ns = self._began_ns
        self._due_ns = 0
        self._recent: deque[_Counts] = deque([_Counts(self._began_ns, 0, 0, 0, 0)], maxlen=_RECENT_POSTS)
        self._last: deque[str] = deque(maxlen=_LAST)
        self._turn = threading.Lock()
        self._post()

    def begin_epoch(self, epoch: int, step: int, step_count: int) -> None:
        """The consumer begins an epoch."""
        self._epoch, self._step, self._step_count = epoch, step, step_count
        self._due_ns = 0
        if not self._batches:  # what was before was starting
            self._handed_ns = perf_counter_ns()
            self._recent[0] = _Counts(self._handed_ns, 0, 0, 0, 0)

    def asked(self, now_ns: int) -> None:
        """The consumer asks for a batch."""
        self._asked_ns = now_ns

    def handed(self, step: int, rows: int, nbytes: int, wait_ns: int, now_ns: int) -> None:
        """It got one."""
        self._step = step + 1
        self._batches += 1
        self._samples += rows
        self._nbytes += nbytes
        self._wait_ns += wait_ns
        self._handed_ns = now_ns
        if now_ns >= self._due_ns:
            self._post()

    def end_epoch(self) -> None:
        """Nothing may be asked for a while."""
        self._post()

    def tell(self, what: str) -> None:
        """Something went wrong."""
        self._last.append(what[:_LAST_LENGTH])
        self._handed_ns = perf_counter_ns()
        self._post()

    def supplied(self, store: str) -> None:
        """What was fetched from a store."""
        self._store = store

    def look(self) -> None:
        """Something may have changed: called by telecom threads, four times a second while anything is being made."""
        if perf_counter_ns() >= self._due_ns:
            self._post()

    def close(self) -> None:
        """Nothing is shown any more; may be called twice."""
        self._board.close()

    def _post(self) -> None:
        if not self._turn.acquire(timeout=0):  # another thread posts, or this one was interrupted while it did
            return
        try:
            now_ns = perf_counter_ns()
            self._due_ns = now_ns + _PAUSE_NS
            self._board.post(self._shown(now_ns))
        except Exception:  # noqa: BLE001, S110 - what only looks on breaks nothing
            pass
        finally:
            self._turn.release()

    def _shown(self, now_ns: int) -> Shown:
        counts = _Counts(self._handed_ns, self._batches, self._samples, self._nbytes, self._wait_ns)
        if counts.batches != self._recent[-1].batches:
            self._recent.append(counts)
        first, last = self._recent[0], self._recent[-1]
        view, config = self._view, self._recipe.config
        return Shown(
            pid=os.getpid(),
            consumer=self._recipe.consumer,
            consumer_count=config.consumer_count,
            dataset=self._recipe.dataset_name,
            batch_size=config.batch_size,
            is_measured=config.measures,
            began_ns=self._began_ns,
            posted_ns=now_ns,
            epoch=self._epoch,
            step=self._step,
            step_count=self._step_count,
            batches=counts.batches,
            samples=counts.samples,
            nbytes=counts.nbytes,
            wait_s=counts.wait_ns / _NS,
            recent_s=(last.at_ns - first.at_ns) / _NS,
            recent_batches=last.batches - first.batches,
            recent_samples=last.samples - first.samples,
            recent_nbytes=last.nbytes - first.nbytes,
            recent_wait_s=(last.wait_ns - first.wait_ns) / _NS,
            is_waiting=self._asked_ns > self._handed_ns,
            since_ns=max(self._asked_ns, self._handed_ns),
            ready=0 if view is None else view.ready_count,
            ready_most=config.data_queue_size if view is None or view.ready_most is None else view.ready_most,
            slots={} if view is None else view.slots(),
            control_fd=-1 if view is None else view.control_fd,
            workers=[] if view is None else view.workers(),
            last=list(self._last),
            store=self._store,
        )
