"""Tables that lie in a folder of this machine, since they could not be written beside their shards."""

from __future__ import annotations

import asyncio

from swift_loader.fetcher.network import Part
from swift_loader.shards.folder import Folder


class TablesHere:
    """Gives them as a `Network` does.

    Args:
        path: The folder.
    """

    def __init__(self, path: str) -> None:
        self._folder = Folder(path)

    async def get(self, name: str, begin: int, end: int) -> Part:
        """A table.

        Raises:
            FileNotFoundError, ShardError: if it cannot be had.
        """
        data = await asyncio.to_thread(self._folder.read, name, begin, end - begin)
        return Part(data, None, end)
