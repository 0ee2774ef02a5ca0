"""A folder of tar files that nobody has made a set of: they are gone through once, for this process and its workers."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError
from swift_loader.host.warn import warn_user
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.borrowed import let_go_with
from swift_loader.shards.catalog import FOREIGN
from swift_loader.shards.folder import Folder
from swift_loader.shards.indexing import index
from swift_loader.shards.sets import Elsewhere
from swift_loader.shards.url import place_of

if TYPE_CHECKING:
    from swift_loader.shards.clients import Where


class OwnIndex:
    """Their catalog and tables in a temporary folder, which goes with this object, or with its process."""

    def __init__(self, where: Where) -> None:
        folder = tempfile.TemporaryDirectory(prefix="swift-index-")
        let_go_with(self, folder)
        self.path = folder.name
        made = index(where.url, index_to=self.path, client=where.client)
        if made.flags & FOREIGN:
            warn_user(
                f"the tar files of {where.url} have no tables: all of them were gone through, as they are in each run; "
                f"`swift-loader shard index {where.url}` does that once"
            )


def needs_index(where: Where) -> bool:
    """Whether there are tar files, and no catalog."""
    place = place_of(where.url)
    try:
        store = Folder(place.path) if place.scheme == "file" else Elsewhere(where.client).at(place)
        names = [found.name for found in store.listed()]
    except (ConfigError, OSError):
        return False
    has_catalog = any(name == catalogs.NAME or name.startswith("index-") for name in names)
    return not has_catalog and any(name.endswith(".tar") for name in names)
