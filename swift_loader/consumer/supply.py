"""What was fetched for a dataset that lies elsewhere, since its loader was started: requests, bytes, what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from swift_loader.errors import SwiftLoaderError
from swift_loader.host.warn import warn_user

#: What of it is told, by the names of `statistics()`.
_TOLD = (
    "requests", "nbytes", "retries", "hedges", "refetches", "renewals", "runs", "ranges", "ranges_nbytes", "hits_kept",
    "kept_nbytes", "waits", "wait_s",
)  # fmt: skip
#: What a million of requests that read costs, where most rent their buckets.
_DOLLARS_PER_REQUEST = 0.4e-6


class Supply:
    """Asks the dataset that the trainer holds; there is nothing where it holds none, or nothing is fetched for it."""

    def __init__(self, dataset: Any) -> None:
        ask = getattr(dataset, "store_statistics", None)
        self._ask: Callable[[], Mapping[str, Any] | None] | None = ask if callable(ask) else None
        self._before: Mapping[str, float] = {}
        self._begun_s = monotonic()
        self._last: dict[str, float] = {}
        self._warned: set[str] = set()

    def begin(self) -> None:
        """What was fetched before was for others: all trainings of a host share what fetches."""
        self._before, self._begun_s = self._asked(), monotonic()

    def figures(self) -> dict[str, float]:
        """Since then, as `statistics()` has it; of this host, and not of this rank alone."""
        if self._ask is None:
            return {}
        now = self._asked()
        if now:
            counts = {name: max(0.0, now.get(name, 0.0) - self._before.get(name, 0.0)) for name in _TOLD}
            self._last = {f"store_{name}": count for name, count in counts.items()}
            self._last["store_bytes_per_s"] = counts["nbytes"] / max(1e-3, monotonic() - self._begun_s)
            self._last["store_dollars"] = counts["requests"] * _DOLLARS_PER_REQUEST
        return self._last

    def _asked(self) -> dict[str, float]:
        if self._ask is None:
            return {}
        try:
            said = self._ask() or {}
        except (SwiftLoaderError, OSError):  # what only looks on breaks nothing
            return {}
        warning = said.get("warning")
        if warning and warning not in self._warned:
            self._warned.add(warning)
            warn_user(f"cache: {warning}")
        return {name: float(said[name]) for name in _TOLD if isinstance(said.get(name), int | float)}
