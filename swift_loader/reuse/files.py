"""The files of a store: opened, looked at, and made anew where they are not of these samples.

    {prefix}.lock    empty; locked while the others are opened or made, so that one job makes them and all use them
    {prefix}.index   see `index`          {prefix}.data   the samples

Files are ours alone (0600), and refused where they are anybody else's, a link, or no plain file: what lies in them is
unpickled. They are made under other names and renamed, so what is there under their own was whole once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from swift_loader.host.locks import Locks
from swift_loader.reuse import index
from swift_loader.reuse.index import Header, Origin

_WAIT_S = 10.0
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
_CANNOT_WRITE = (errno.EROFS, errno.EACCES, errno.EPERM)


class Foreign(Exception):
    """The files are in use by somebody whose samples are others. Says what differs."""


@dataclass(frozen=True, slots=True)
class Files:
    """The open files of a store, as one process has them."""

    index_fd: int
    data_fd: int
    header: Header
    writable: bool
    renewed: str = ""
    """Why what was there before was not used, in words, if anything was."""

    def close(self) -> None:
        """Lets go of them."""
        with contextlib.suppress(OSError):
            Locks(self.index_fd).leave_all()  # a mapping may hold the files open for longer
        for fd in (self.index_fd, self.data_fd):
            with contextlib.suppress(OSError):
                os.close(fd)


class Ground(Protocol):
    """Where files are: on a disk, or in memory."""

    lock_place: int

    def lock(self) -> int | None:
        """A descriptor whose ``lock_place`` is locked while the store is opened; None where nothing can be written."""

    def existing(self, *, writable: bool) -> tuple[int, int] | None:
        """Descriptors of index and data, if they are there."""

    def fresh(self) -> tuple[int, int]:
        """Descriptors of an index and data that may be written anew."""

    def publish(self) -> None:
        """What was written to the fresh ones is what exists from now on."""

    def is_still(self, files: Files) -> bool:
        """Whether ``files`` are what others who come now would open."""


def open_files(ground: Ground, origin: Origin, arena_nbytes: int) -> Files:
    """The files of a store of these samples: those that are there, or new ones.

    Raises:
        OSError: if that cannot be.
        Foreign: if others use what is there.
    """
    lock_fd = ground.lock()
    if lock_fd is None:
        return _opened_to_read(ground, origin)
    try:
        if not Locks(lock_fd).take(ground.lock_place, wait_s=_WAIT_S):
            raise TimeoutError(errno.ETIMEDOUT, f"somebody has been opening the cache for {_WAIT_S:g} s")
        found = ground.existing(writable=True)
        if found is None:
            return _made(ground, origin, arena_nbytes, "")
        files, why = _looked_at(found, origin, writable=True)
        return _made(ground, origin, arena_nbytes, why) if files is None else files
    finally:
        os.close(lock_fd)


def _opened_to_read(ground: Ground, origin: Origin) -> Files:
    found = ground.existing(writable=False)
    if found is None:
        raise OSError(errno.EROFS, "nothing can be written there, and nothing is there yet")
    files, why = _looked_at(found, origin, writable=False)
    if files is None:
        raise OSError(errno.EROFS, f"nothing can be written there, and what is there does not fit: {why}")
    return files


def _looked_at(found: tuple[int, int], origin: Origin, *, writable: bool) -> tuple[Files | None, str]:
    index_fd, data_fd = found
    files = None
    try:
        header = Header.read(os.pread(index_fd, index.HEADER_NBYTES, 0))
        if header is None:
            return None, "the index is damaged, or of another version" if os.fstat(index_fd).st_size else ""
        if header.origin != origin:
            why = origin.differs_from(header.origin)
            if writable and Locks(index_fd).others_hold(index.LOCK_USE):
                raise Foreign(why)
            return None, why
        if os.pread(data_fd, 16, 0) != header.data_head() or os.fstat(index_fd).st_size < header.index_nbytes:
            return None, "index and data do not belong to each other"
        files = _in_use(Files(index_fd, data_fd, header, writable))
        return files, ""
    finally:
        if files is None:
            os.close(index_fd)
            os.close(data_fd)


def _made(ground: Ground, origin: Origin, arena_nbytes: int, why: str) -> Files:
    index_fd, data_fd = ground.fresh()
    header = Header(secrets.randbits(63) | 1, arena_nbytes, origin)
    try:
        os.ftruncate(index_fd, max(header.index_nbytes, os.fstat(index_fd).st_size))
        _write(data_fd, header.data_head())
        _write(index_fd, header.written())
        ground.publish()
    except BaseException:
        os.close(index_fd)
        os.close(data_fd)
        raise
    return _in_use(Files(index_fd, data_fd, header, writable=True, renewed=why))


def _in_use(files: Files) -> Files:
    """Others see from now on that somebody uses these."""
    Locks(files.index_fd).share(index.LOCK_USE)
    return files


def _write(fd: int, data: bytes) -> None:
    if os.pwrite(fd, data, 0) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Disk:
    """Files of a prefix."""

    lock_place = 0

    def __init__(self, prefix: str) -> None:
        # Imported by those only who keep something on a disk: a worker without a cache does without it.
        from swift_loader.host.outfile import trusted  # noqa: PLC0415

        path = Path(prefix).absolute()
        if path.is_dir() or prefix.endswith("/"):
            path /= "samples"
        self._trusted = trusted
        self._path = path
        self._names = [path.with_name(f"{path.name}{end}") for end in (".index", ".data", ".lock")]
        self._fresh = [path.with_name(f"{path.name}{end}.new") for end in (".index", ".data")]

    def lock(self) -> int | None:
        """See `Ground`."""
        try:
            self._trusted(self._names[2])
            return _opened(self._names[2], os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno in _CANNOT_WRITE and all(name.is_file() for name in self._names[:2]):
                return None
            raise

    def existing(self, *, writable: bool) -> tuple[int, int] | None:
        """See `Ground`."""
        mode = os.O_RDWR if writable else os.O_RDONLY
        fds: list[int] = []
        try:
            for name in self._names[:2]:
                with contextlib.suppress(FileNotFoundError):
                    fds.append(_opened(name, mode))
            if len(fds) == 2:
                return fds[0], fds[1]
        except BaseException:
            _close_all(fds)
            raise
        _close_all(fds)  # one alone is nothing
        return None

    def fresh(self) -> tuple[int, int]:
        """See `Ground`. What a job that was killed has left under these names goes."""
        for name in self._fresh:
            name.unlink(missing_ok=True)
        index_fd = _opened(self._fresh[0], os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            return index_fd, _opened(self._fresh[1], os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except BaseException:
            os.close(index_fd)
            raise

    def publish(self) -> None:
        """See `Ground`. The data first: an index never goes before what it is about."""
        for new, name in reversed(list(zip(self._fresh, self._names[:2], strict=True))):
            new.replace(name)

    def is_still(self, files: Files) -> bool:
        """See `Ground`."""
        try:
            return all(
                os.path.samestat(os.fstat(fd), name.lstat())
                for fd, name in zip((files.index_fd, files.data_fd), self._names[:2], strict=True)
            )
        except OSError:
            return False

    def __str__(self) -> str:
        return str(self._path)


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _opened(path: Path, mode: int) -> int:
    fd = os.open(path, mode | _FLAGS, 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(errno.EPERM, f"{path.name} is no plain file")
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or found.st_nlink > 1:
            raise PermissionError(
                errno.EPERM,
                f"{path.name} is not this user's alone (owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}, "
                f"{found.st_nlink} names), and what is kept is unpickled",
            )
    except BaseException:
        os.close(fd)
        raise
    return fd
