"""Sets that MosaicML's streaming wrote (MDS): what their `index.json` tells."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards.catalog import Kind, Shard
from swift_loader.shards.encodings import static_array
from swift_loader.shards.layouts import Column, Layout
from swift_loader.shards.store import Store

_NAMES = {"jpegarray": "jpeg_array"}


def read_mds(told: Mapping[str, Any], store: Store) -> tuple[Layout, list[Shard]]:
    """The layout and the shards of a set.

    Raises:
        ConfigError: if it is compressed.
        ShardError: if it is no such index.
    """
    layout, shards = None, []
    for number, one in enumerate(told["shards"]):
        if one.get("format") != "mds" or one.get("version") != 2:
            raise ShardError.at(f"shard {number} is of another format", None, "mds 2", one.get("format"))
        name, nbytes = str(one["raw_data"]["basename"]), int(one["raw_data"]["bytes"])
        if one.get("zip_data") and not _is_there(store, name):
            raise ConfigError(
                f"{store.where} is compressed ({one.get('compression')}): a sample could only be reached by unpacking "
                "the shard. Unpack its shards beside the compressed ones (zstd -d), or write it without compression="
            )
        columns = zip(one["column_names"], one["column_encodings"], one["column_sizes"], strict=True)
        found = Layout(tuple(starmap(_column, columns)))
        if layout not in (None, found):
            raise ShardError("its samples have other columns than those before it").within(name)
        layout = found
        shards.append(Shard(name, int(one["samples"]), nbytes, 0, 0, 0, bytes(16), Kind.MDS))
    if layout is None:
        raise ShardError("there are no shards in it")
    return layout, [shard for shard in shards if shard.samples]


def _column(name: Any, encoding: Any, nbytes: Any) -> Column:
    plain = _NAMES.get(encoding, str(encoding))
    dtype, shape = static_array(plain)
    is_alike = bool(dtype) and shape is not None
    if nbytes and not (isinstance(nbytes, int) and 0 < nbytes < 1 << 40):
        raise ShardError.at(f"column {name!r} has a size that cannot be", None, None, nbytes)
    if is_alike and not nbytes:
        raise ShardError.at(f"column {name!r} has no size, and all values of {encoding} have one", None, None, nbytes)
    return Column(str(name), plain, nbytes or None)


def _is_there(store: Store, name: str) -> bool:
    try:
        store.nbytes(name)
    except FileNotFoundError:
        return False
    return True
