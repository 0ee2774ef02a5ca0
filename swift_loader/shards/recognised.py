"""Sets of other libraries by the `index.json` in their folder: whose they are, how samples lie, and a catalog of them.

The catalog is nowhere but in memory. One that was made with checksums (`indexing.py`) tells in its notes how samples
lie, and is read in its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.catalog import Catalog
from swift_loader.shards.layouts import IN_PLACE, Layout
from swift_loader.shards.litdata import read_litdata
from swift_loader.shards.mds import read_mds
from swift_loader.shards.opening import refuse_large
from swift_loader.shards.store import Store

INDEX = "index.json"
#: What Python makes of JSON takes about so many times its bytes.
_JSON_FACTOR = 10


def recognised(store: Store) -> tuple[Layout, Catalog] | None:
    """The set of another library that is in a folder; None if there is none.

    Raises:
        ConfigError: if it is written so that samples cannot be picked out of it.
        ShardError: if it is damaged.
    """
    told = index_of(store)
    if told is None:
        return None
    try:
        layout, shards = read_mds(told, store) if "shards" in told else read_litdata(told, store)
        return layout, Catalog.read(catalogs.write(shards, generation=0, meta=notes(layout)))
    except ShardError as error:
        raise error.within(INDEX, store.where) from error.__cause__
    except ConfigError:
        raise
    except FileNotFoundError as error:
        raise ShardError(f"a file that it names is not there: {error.filename}").within(INDEX, store.where) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ShardError(f"it does not tell what such an index tells: {error!r}").within(INDEX, store.where) from error


def index_of(store: Store) -> Mapping[str, Any] | None:
    """What the `index.json` of a folder says, if it is one of MosaicML's or LitData's; None if there is none."""
    try:
        refuse_large(_JSON_FACTOR * store.nbytes(INDEX))
        data = bytes(memoryview(store.whole(INDEX)))
    except FileNotFoundError:
        return None
    try:
        told = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ShardError("it is no JSON that can be read").within(INDEX, store.where) from error
    if not isinstance(told, dict) or not ("shards" in told or {"chunks", "config"} <= set(told)):
        raise ShardError("it is neither MosaicML's nor LitData's").within(INDEX, store.where)
    return told


def notes(layout: Layout) -> dict[str, Any]:
    """What the catalog says of it."""
    return {"layout": layout.told()}


def layout_of(catalog: Catalog) -> Layout | None:
    """How samples lie, in files that do not tell it themselves; None where all shards have tables and need no more."""
    if not np.isin(catalog.rows["kind"], IN_PLACE).any():
        return None
    meta = catalog.meta
    return Layout.of(meta.get("layout") if isinstance(meta, dict) else None)
