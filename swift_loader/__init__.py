"""swift_loader: a data loader for multi-GPU training.

The names below are imported when they are first used: importing the package costs nothing and does not import torch,
which its workers do without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_loader.compat import AsyncDataLoader, DataLoader
    from swift_loader.errors import (
        ConfigError,
        DataError,
        LayoutError,
        LoaderClosed,
        NoRoom,
        PeerError,
        PeerLost,
        PoisonedTicket,
        ProtocolError,
        ProtocolMismatch,
        RankMismatch,
        ShardError,
        SwiftLoaderError,
        WorkerDied,
        WorkerError,
        WorkerHung,
        WorkerStartFailed,
    )
    from swift_loader.loader import SwiftLoader
    from swift_loader.plan.bucketed import BucketedPlan
    from swift_loader.plan.plan import EpochPlan, Plan
    from swift_loader.plan.weighted import WeightedPlan
    from swift_loader.reuse.cached import Cached
    from swift_loader.settings.cache import CacheSetting
    from swift_loader.settings.ray_engine import RayEngine
    from swift_loader.settings.rotation import RotationSetting
    from swift_loader.settings.secret import Secret
    from swift_loader.worker.info import WorkerInfo, worker_info

__version__ = "0.1.0"

__all__ = [
    "AsyncDataLoader",
    "BucketedPlan",
    "CacheSetting",
    "Cached",
    "ConfigError",
    "DataError",
    "DataLoader",
    "EpochPlan",
    "LayoutError",
    "LoaderClosed",
    "NoRoom",
    "PeerError",
    "PeerLost",
    "Plan",
    "PoisonedTicket",
    "ProtocolError",
    "ProtocolMismatch",
    "RankMismatch",
    "RayEngine",
    "RotationSetting",
    "Secret",
    "ShardError",
    "SwiftLoader",
    "SwiftLoaderError",
    "WeightedPlan",
    "WorkerDied",
    "WorkerError",
    "WorkerHung",
    "WorkerInfo",
    "WorkerStartFailed",
    "__version__",
    "worker_info",
]

_HOMES = {
    "AsyncDataLoader": "swift_loader.compat",
    "DataLoader": "swift_loader.compat",
    "SwiftLoader": "swift_loader.loader",
    "BucketedPlan": "swift_loader.plan.bucketed",
    "CacheSetting": "swift_loader.settings.cache",
    "Cached": "swift_loader.reuse.cached",
    "EpochPlan": "swift_loader.plan.plan",
    "Plan": "swift_loader.plan.plan",
    "WeightedPlan": "swift_loader.plan.weighted",
    "RayEngine": "swift_loader.settings.ray_engine",
    "RotationSetting": "swift_loader.settings.rotation",
    "Secret": "swift_loader.settings.secret",
    "WorkerInfo": "swift_loader.worker.info",
    "worker_info": "swift_loader.worker.info",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'swift_loader' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "swift_loader.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
