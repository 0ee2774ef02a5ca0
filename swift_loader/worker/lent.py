"""Memory that a server on this machine lends: mapped once, since that takes longer than copying, and copied from."""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from swift_loader.errors import ProtocolError

if TYPE_CHECKING:
    from swift_loader.net.receiver import Frame
    from swift_loader.net.schema import Parcel

#: As many as a server is likely to fill in turn; what it no longer fills is forgotten then.
_MOST_MAPPED = 64


class Lent:
    """Files in memory that have come along, by what the kernel tells them apart by."""

    def __init__(self) -> None:
        self._mapped: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self.copied: dict[int, tuple[Frame, Parcel | None]] = {}
        """Batches that were, by their orders: to be delivered when the server says that it had held them until then."""

    def copy(self, fd: int, into: memoryview) -> None:
        """Its first bytes. Takes the descriptor over.

        Raises:
            ProtocolError: if there are fewer.
        """
        source = self._memory(fd)
        if source.nbytes < into.nbytes:
            raise ProtocolError(f"a file of {source.nbytes:,} bytes came for a batch of {into.nbytes:,}")
        np.frombuffer(into, np.uint8)[:] = source[: into.nbytes]

    def _memory(self, fd: int) -> np.ndarray:
        try:
            found = os.fstat(fd)
            key = (found.st_dev, found.st_ino)
            if key not in self._mapped:
                # A sealed file, as all slots are, cannot be shrunk. One that is would end this process and no other.
                flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
                mapping = mmap.mmap(fd, found.st_size, flags=flags, prot=mmap.PROT_READ)
                self._mapped[key] = np.frombuffer(mapping, np.uint8)
        except (OSError, ValueError) as error:
            raise ProtocolError(f"what came along cannot be read as a file: {error}") from error
        finally:
            os.close(fd)
        self._mapped.move_to_end(key)
        if len(self._mapped) > _MOST_MAPPED:
            self._mapped.popitem(last=False)
        return self._mapped[key]
