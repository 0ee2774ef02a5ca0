"""Shards in a folder of this machine, or of one that is mounted here.

What is written has no name, or a hidden one, until all of it is on the disk; then it is linked to its own, which fails
if there is something of that name. So no reader ever sees half of a file, and of two writers one is told.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.mapping import whole_file
from swift_loader.host.systems import flags
from swift_loader.host.writing import write_all
from swift_loader.shards.fields import trouble_with_path
from swift_loader.shards.store import Found

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_READ = flags("O_RDONLY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY")
_NAMELESS = flags("O_TMPFILE", "O_RDWR", "O_CLOEXEC")
_NAMED = flags("O_RDWR", "O_CREAT", "O_EXCL", "O_CLOEXEC", "O_NOFOLLOW")
#: What a disk says that has no files without names.
_NOT_HERE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
#: What one says on which a file has but one name: buckets that are mounted, sticks.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_MOST_PIECES = 1024
_DRAFT = ".part"


class Folder:
    """A folder as a `store.Store`."""

    at_once = 1
    """The disk is one."""

    def __init__(self, path: str | Path, *, make: bool = False) -> None:
        self.path = Path(path).absolute()
        if make:
            self.path.mkdir(parents=True, exist_ok=True)
        if not self.path.is_dir():
            raise ConfigError(f"there is no folder {self.path}")
        if make:
            self._clear_away()

    @property
    def where(self) -> str:
        """See `Store`."""
        return str(self.path)

    def __repr__(self) -> str:
        return f"Folder({self.where!r})"

    def nbytes(self, name: str) -> int:
        """See `Store`."""
        return self._file(name).stat().st_size

    def open(self, name: str) -> int:
        """A descriptor of the file, to read from."""
        fd = os.open(self._file(name), _READ)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise ShardError("it is no file").within(name, self.where)
        return fd

    def read(self, name: str, offset: int, nbytes: int) -> bytes:
        """See `Store`."""
        fd = self.open(name)
        try:
            parts, left = [], nbytes
            while left and (part := os.pread(fd, left, offset + nbytes - left)):
                parts.append(part)
                left -= len(part)
        finally:
            os.close(fd)
        if left:
            error = ShardError.at("the file ends too early", offset + nbytes - left, offset + nbytes)
            raise error.within(name, self.where)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def whole(self, name: str) -> memoryview:
        """See `Store`."""
        return whole_file(self.open(name))

    def draft(self, name: str) -> FolderDraft:
        """See `Store`."""
        return FolderDraft(self._file(name))

    def replace(self, name: str, data: Buffer) -> None:
        """See `Store`."""
        draft = FolderDraft(self._file(name), named=True)
        try:
            draft.write([data])
            draft.publish(over=True)
        finally:
            draft.discard()

    def delete(self, name: str) -> None:
        """See `Store`."""
        self._file(name).unlink(missing_ok=True)

    def listed(self, prefix: str = "") -> Iterator[Found]:
        """See `Store`."""
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(prefix) and entry.is_file()]
        for name in sorted(names):
            if not name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # gone since
                    yield Found(name, self.nbytes(name))

    def _file(self, name: str) -> Path:
        trouble = trouble_with_path(os.fsencode(name)) or ("it has a zero byte" if "\0" in name else "")
        if trouble:
            raise ShardError(f"no file can be called {name!r}: {trouble}").within(set=self.where)
        return self.path / name

    def _clear_away(self) -> None:
        """Removes what writers that were killed have left under hidden names."""
        for path in self.path.glob(f".*{_DRAFT}"):
            with contextlib.suppress(OSError):  # another writer is at it
                fd = os.open(path, _READ | flags("O_NOFOLLOW"))
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(fd)


class FolderDraft:
    """A file that is being written, as a `store.Draft`."""

    def __init__(self, target: Path, *, named: bool = False) -> None:
        self._target = target
        self._temporary: Path | None = None
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if named:
                raise OSError(errno.EOPNOTSUPP, "a name is asked for")
            self._fd = os.open(target.parent, _NAMELESS, 0o666)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            self._temporary, self._fd = _hidden(target)

    def write(self, pieces: Sequence[Buffer]) -> None:
        """See `Draft`."""
        for begin in range(0, len(pieces), _MOST_PIECES):
            some = pieces[begin : begin + _MOST_PIECES]
            left = sum(memoryview(piece).nbytes for piece in some) - os.writev(self._fd, some)
            if left:  # the disk is nearly full, or it is a network's
                write_all(self._fd, b"".join(some)[-left:])

    def publish(self, *, over: bool = False) -> None:
        """See `Draft`. ``over``: in the place of what is there."""
        os.fsync(self._fd)
        folder = os.open(self._target.parent, flags("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC"))
        try:
            if over:
                self._rename()
            else:
                self._link(folder)
            os.fsync(folder)
        finally:
            os.close(folder)

    def _link(self, folder: int) -> None:
        # A file without a name is linked by its descriptor.
        source = self._temporary or f"/proc/self/fd/{self._fd}"
        try:
            os.link(source, self._target.name, dst_dir_fd=folder, follow_symlinks=True)
        except OSError as error:
            if error.errno not in _NO_LINKS or self._temporary is None:
                raise
            # Two writers at once are not kept apart here; one after the other are.
            if self._target.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._target)) from None
            self._rename()

    def _rename(self) -> None:
        assert self._temporary is not None  # what is put over another has a name
        self._temporary.replace(self._target)
        self._temporary = None

    def discard(self) -> None:
        """See `Draft`."""
        fd, self._fd = self._fd, -1
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None
        if fd >= 0:
            os.close(fd)


def _hidden(target: Path) -> tuple[Path, int]:
    """A new file beside ``target``, locked, so that nobody takes it for one that a killed writer has left."""
    while True:
        path = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}{_DRAFT}")
        fd = os.open(path, _NAMED, 0o666)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:
                return path, fd
        os.close(fd)  # another writer has cleared it away between these lines
