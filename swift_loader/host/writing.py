"""All bytes of something go into a file: the system may take fewer at a time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


def write_all(fd: int, data: Buffer) -> None:
    """Writes them where the file stands."""
    with memoryview(data) as whole:
        done = 0
        while done < whole.nbytes:
            with whole[done:] as left:
                done += os.write(fd, left)
