"""A dataset that tells whether faults were asked for in its worker. No torch here."""

from __future__ import annotations

from swift_loader.worker.faultpoints import POINTS


class Wrapped:
    """Whether any method that is a place for a fault is wrapped in this worker."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> bool:
        import sys

        homes = [point.home.partition(":") for point in POINTS.values()]
        found = [vars(getattr(sys.modules[module], cls)) for module, _, cls in homes if module in sys.modules]
        return any("_wrap" in getattr(call, "__qualname__", "") for home in found for call in home.values())
