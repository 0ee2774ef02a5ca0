"""Which file lies behind a place in memory, as the kernel tells: its bytes need not be sent to whoever can map it."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from pathlib import Path

#: Memory under a name that its maker may take away at any moment.
_PASSING = "/dev/shm/"  # noqa: S108 - it is looked for, not written to


@dataclass(frozen=True, slots=True)
class Mapped:
    """A stretch of memory that is a stretch of a file, and changes with it."""

    begin: int
    """The address."""
    nbytes: int
    path: str
    start: int
    """In the file."""
    is_writable: bool


class Maps:
    """The mappings of this process. Read when first asked, and again before one is named for the first time: whoever is
    told of it keeps what it was asked about, and so the mapping.
    """

    def __init__(self) -> None:
        self._found: list[Mapped] | None = None
        self._named: set[Mapped] = set()

    def at(self, address: int, nbytes: int, *, passing: bool = False) -> Mapped | None:
        """The mapping in which all these bytes lie; None if no file has them. ``passing``: also shared memory."""
        if self._found is None:
            self._found = _read()
        found = self._look(address, nbytes)
        if found is not None and found not in self._named:
            self._found = _read()  # what was mapped there may be gone
            found = self._look(address, nbytes)
        if found is None or (found.path.startswith(_PASSING) and not passing):
            return None
        self._named.add(found)
        return found

    def _look(self, address: int, nbytes: int) -> Mapped | None:
        assert self._found is not None
        place = bisect.bisect_right(self._found, address, key=lambda mapped: mapped.begin) - 1
        if place < 0:
            return None
        mapped = self._found[place]
        return mapped if address + nbytes <= mapped.begin + mapped.nbytes else None


def _read() -> list[Mapped]:
    found = []
    with Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            span, rights, start, _, _, *rest = line.rstrip("\n").split(maxsplit=5)
            path = rest[0] if rest else ""
            if rights[3] != "s" or not path.startswith("/") or path.endswith(" (deleted)"):
                continue
            begin, end = (int(number, 16) for number in span.split("-"))
            nbytes = min(end - begin, _size_of(path) - int(start, 16))
            if nbytes > 0:
                found.append(Mapped(begin, nbytes, path, int(start, 16), "w" in rights))
    return found


def _size_of(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # another file system's view, or no file at all
        return 0
