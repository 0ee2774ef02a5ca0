"""Sets of samples as shards: tar files, each with a table of what lies where, and a catalog that names them all.

The format is told in docs/shard_format.md. The names below are imported when they are first used: xxhash, which checks
what is read, may not be installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_loader.cli.shard_cv import upload_cv_dataset
    from swift_loader.shards.arrays import ArrayDataset
    from swift_loader.shards.catalog import Catalog
    from swift_loader.shards.clients import make_client
    from swift_loader.shards.creating import Created, Progress, create, merge
    from swift_loader.shards.dataset import ShardDataset
    from swift_loader.shards.images import ImageFolder
    from swift_loader.shards.indexing import index
    from swift_loader.shards.making import Indices, Making
    from swift_loader.shards.opening import read_catalog, read_table
    from swift_loader.shards.rows import RawRows
    from swift_loader.shards.store import store_at
    from swift_loader.shards.stream import RemoteDataset
    from swift_loader.shards.table import Table
    from swift_loader.shards.tokens import TokenDataset
    from swift_loader.shards.verifying import Damage, verify

_HOMES = {
    "ArrayDataset": "arrays",
    "Catalog": "catalog",
    "Created": "creating",
    "Damage": "verifying",
    "ImageFolder": "images",
    "Indices": "making",
    "Making": "making",
    "Progress": "creating",
    "RawRows": "rows",
    "RemoteDataset": "stream",
    "ShardDataset": "dataset",
    "Table": "table",
    "TokenDataset": "tokens",
    "create": "creating",
    "index": "indexing",
    "make_client": "clients",
    "merge": "creating",
    "read_catalog": "opening",
    "read_table": "opening",
    "store_at": "store",
    "upload_cv_dataset": "swift_loader.cli.shard_cv",
    "verify": "verifying",
}

__all__ = [
    "ArrayDataset",
    "Catalog",
    "Created",
    "Damage",
    "ImageFolder",
    "Indices",
    "Making",
    "Progress",
    "RawRows",
    "RemoteDataset",
    "ShardDataset",
    "Table",
    "TokenDataset",
    "create",
    "index",
    "make_client",
    "merge",
    "read_catalog",
    "read_table",
    "store_at",
    "upload_cv_dataset",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'swift_loader.shards' has no attribute {name!r}")
    home = _HOMES[name]
    value = getattr(importlib.import_module(home if "." in home else f"swift_loader.shards.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
