"""Sets of samples as shards: tar files, each with a table of what lies where, and a catalog that names them all.

The format is told in docs/shard_format.md. The names below are imported when they are first used: xxhash, which checks
what is read, may not be installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_loader.shards.catalog import Catalog
    from swift_loader.shards.dataset import ShardDataset
    from swift_loader.shards.images import ImageFolder
    from swift_loader.shards.indexing import index
    from swift_loader.shards.opening import read_catalog, read_table
    from swift_loader.shards.store import store_at
    from swift_loader.shards.table import Table
    from swift_loader.shards.tokens import TokenDataset

_HOMES = {
    "Catalog": "swift_loader.shards.catalog",
    "ImageFolder": "swift_loader.shards.images",
    "ShardDataset": "swift_loader.shards.dataset",
    "Table": "swift_loader.shards.table",
    "TokenDataset": "swift_loader.shards.tokens",
    "index": "swift_loader.shards.indexing",
    "read_catalog": "swift_loader.shards.opening",
    "read_table": "swift_loader.shards.opening",
    "store_at": "swift_loader.shards.store",
}

__all__ = [
    "Catalog",
    "ImageFolder",
    "ShardDataset",
    "Table",
    "TokenDataset",
    "index",
    "read_catalog",
    "read_table",
    "store_at",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'swift_loader.shards' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
