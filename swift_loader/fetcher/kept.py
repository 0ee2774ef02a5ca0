"""What is kept on a disk over epochs and jobs: what came first stays, as long as there is room.

Each sample is used once in an epoch, so of what will be used again what is there already is as good as anything else.
A file has a run of the set, behind it the checksum of both; it is written under another name, and is whole as soon as
it has its own. One that is damaged, or cut, is removed, and the run fetched again.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import stat
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader.fetcher.counts import Counts
from swift_loader.fetcher.sets import ShardSet
from swift_loader.host.systems import flags
from swift_loader.host.writing import write_all
from swift_loader.host.xxhash import digest_of, wide_digest_of
from swift_loader.shards.spans import spans
from swift_loader.shards.table import ABSENT, UNCHECKED, Table

_ENDING, _DRAFT = ".run", ".part"
_DIGEST_NBYTES = 16
_READ = flags("O_RDONLY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK")
_WRITE = flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_CLOEXEC", "O_NOFOLLOW")
#: What of a disk's free room is left to others.
_LEFT_NBYTES = 64 << 20


class Kept:
    """A folder of runs.

    Args:
        folder: The user's. In it we have one of our own.
        most_nbytes: The most that our files may take; None: as much as there is room for.
        counts: What is counted.
    """

    def __init__(self, folder: str, most_nbytes: int | None, counts: Counts) -> None:
        self._folder = Path(folder) / "swift-loader-runs"
        self._most, self._counts = most_nbytes, counts
        self._files: dict[str, int] = {}
        self._nbytes = 0
        self._lock = -1
        self._may_write = self._opened()
        self._writing: set[str] = set()

    def _opened(self) -> bool:
        """Looks what there is; whether this process may add to it: one at a time does."""
        drafts = []
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = self._folder.lstat()  # what another user has planted there leads elsewhere
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it is another user's, or no folder")
            for entry in os.scandir(self._folder):
                if entry.name.endswith(_DRAFT):
                    drafts.append(entry.path)
                elif entry.name.endswith(_ENDING) and entry.is_file(follow_symlinks=False):
                    self._files[entry.name] = entry.stat(follow_symlinks=False).st_size
        except OSError as error:
            self._warn(f"nothing is kept in {self._folder}: {error.strerror}")
            return False
        finally:
            self._nbytes = self._counts.kept_nbytes = sum(self._files.values())
        try:
            self._lock = os.open(self._folder / ".writer", flags("O_RDWR", "O_CREAT", "O_CLOEXEC", "O_NOFOLLOW"), 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in drafts:
                Path(path).unlink()  # of a fetcher that was killed
        except BlockingIOError:
            return False
        except OSError as error:
            self._warn(f"nothing more is kept in {self._folder}: {error.strerror}; what is there is used")
            return False
        return True

    async def load(self, of: ShardSet, shard: int, begin: int, end: int) -> Any:
        """A run, if it is kept and whole."""
        name = _name(of, shard, begin, end)
        if name not in self._files:
            return None
        data = await asyncio.to_thread(self._read, name, end - begin)
        if data is None:
            self._remove(name)
        return data

    async def keep(self, of: ShardSet, shard: int, begin: int, data: Any) -> None:
        """Keeps a run, if there is room and all its samples are right."""
        end = begin + data.nbytes
        name, size = _name(of, shard, begin, end), data.nbytes + _DIGEST_NBYTES
        if not self._may_write or name in self._files or name in self._writing:
            return
        if self._most is not None and self._nbytes + size > self._most:
            return
        table = None if of.is_bare(shard) else await of.table(shard)
        self._writing.add(name)
        self._nbytes += size
        try:
            is_kept = await asyncio.to_thread(self._written, name, data, table, begin)
        finally:
            self._writing.discard(name)
        if is_kept:
            self._files[name] = size
        else:
            self._nbytes -= size
        self._counts.kept_nbytes = self._nbytes

    def drop(self, of: ShardSet, shard: int, begin: int, end: int) -> None:
        """What was read of it is damaged."""
        self._remove(_name(of, shard, begin, end))

    def _remove(self, name: str) -> None:
        self._nbytes -= self._files.pop(name, 0)
        with suppress(OSError):
            (self._folder / name).unlink()

    def _read(self, name: str, nbytes: int) -> Any:
        try:
            fd = os.open(self._folder / name, _READ)
        except OSError:
            return None
        try:
            data: Any = np.empty(nbytes + _DIGEST_NBYTES, np.uint8)
            view, at = memoryview(data), 0
            while at < len(view) and (count := os.preadv(fd, [view[at:]], at)):
                at += count
        except OSError:
            return None
        finally:
            os.close(fd)
        found = data[:nbytes]
        is_whole = at == len(view) and wide_digest_of(found) == data[nbytes:].tobytes()
        return found if is_whole else None

    def _written(self, name: str, data: Any, table: Table | None, begin: int) -> bool:
        if not _is_right(data, table, begin):
            return False
        path = self._folder / f"{secrets.token_hex(8)}{_DRAFT}"
        fd = -1
        try:
            free = os.statvfs(self._folder)
            if free.f_bavail * free.f_frsize < data.nbytes + _LEFT_NBYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fd = os.open(path, _WRITE, 0o600)
            write_all(fd, data)
            write_all(fd, wide_digest_of(data))
            path.rename(self._folder / name)
            return True
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            self._may_write = False
            self._warn(f"nothing more is kept in {self._folder}: {error.strerror}; what is there is used")
            return False
        finally:
            if fd >= 0:
                os.close(fd)

    def _warn(self, text: str) -> None:
        self._counts.warn(f"cache: {text}")


def _name(of: ShardSet, shard: int, begin: int, end: int) -> str:
    """Other bytes have another name: those of another set, or of the same shard made anew."""
    told = of.catalog.shard(shard)
    identity = (of.network.objects.where, told.name, told.object_nbytes, told.table_digest, told.payload_digest)
    return f"{blake2b(repr(identity).encode(), digest_size=12).hexdigest()}-{begin}-{end}{_ENDING}"


def _is_right(data: Any, table: Table | None, begin: int) -> bool:
    """Whether all samples that lie in there are what the table says, if there is one."""
    if table is None or table.flags & UNCHECKED:
        return True
    end = begin + data.nbytes
    begins, ends = spans(table, np.arange(table.samples))
    for sample in np.flatnonzero((begins >= begin) & (ends <= end) & (ends > begins)).tolist():
        if table.rows is not None:
            at, size = int(begins[sample]) - begin, table.rows.nbytes
            if digest_of(data[at : at + size]) != int(table.entries[sample, 0, 0]):
                return False
            continue
        for offset, size, digest in table.entries[sample].tolist():
            if size != ABSENT and digest_of(data[offset - begin : offset - begin + size]) != digest:
                return False
    return True
