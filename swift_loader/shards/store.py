"""The store that an address names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError
from swift_loader.shards.url import place_of
from swift_loader.stores.protocol import Draft, Found, Store

if TYPE_CHECKING:
    from swift_loader.stores.client import Client

__all__ = ["Draft", "Found", "Store", "store_at"]


def store_at(url: object, *, make: bool = False, client: Client | None = None) -> Store:
    """The store that ``url`` names, asked by this process itself; with ``make``, a folder is made where there is none.

    For commands, and for who writes. What reads for a training asks the host's fetcher instead: the client of object
    stores does not survive a fork, neither here nor in the child.

    Args:
        url: A folder's path, ``file:///path``, or ``scheme://bucket/folder``.
        make: Make the folder. A bucket's folders need not be made.
        client: Who is let in, and where the server is; None: what the environment says.

    Raises:
        ConfigError: if there is no such store, or it cannot be had here.
    """
    place = place_of(url)
    if place.scheme == "file":
        from swift_loader.shards.folder import Folder  # noqa: PLC0415 - as other stores: only where it is asked for

        return Folder(place.path, make=make)
    from swift_loader.stores.client import Client  # noqa: PLC0415
    from swift_loader.stores.obstore import SCHEMES, Objects  # noqa: PLC0415 - see above

    if place.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ConfigError(
            f"{place.scheme}:// is no store that shards can be in: name a folder of this machine, or {known}"
        )
    return Objects(place, client or Client())
