"""The files that a user has named for us to write: log, benchmark, trace.

Nothing that happens to such a file stops a training run, or changes a batch: what fails is told once, by a warning, and
the file is let go. Files that we make are for this user alone (0600, folders 0700): they tell of paths and data. Who
wants others to read them makes file or folder himself; what is there keeps its mode.

In folders where everybody may write, such as /tmp, another user may have put something under the name that we were
given. Linux can protect from that (fs.protected_symlinks and its kin), but not every machine is set so: the same rule
is applied here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from swift_loader.host.systems import flags
from swift_loader.host.warn import warn_user
from swift_loader.host.writing import write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_FLAGS = flags("O_RDWR", "O_CREAT", "O_APPEND", "O_CLOEXEC", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK")
_BACKUPS = 2
_ADVICE = {
    errno.ENOSPC: "make room on that disk, or name a path on another",
    errno.EDQUOT: "your quota there is used up: make room, or name a path on another disk",
    errno.EFBIG: "files may not grow larger there (ulimit -f): raise that, or name a path on another disk",
    errno.EROFS: "that disk can only be read: name a path on another",
    errno.EIO: "that disk is failing: name a path on another",
}


class OutFile:
    """A file that lines are added to.

    Args:
        path: Where it is.
        setting: What the user knows it as: ``benchmark_file``.
        most_nbytes: If it would grow larger it is put aside, under the names ``{path}.1`` and ``{path}.2``.
    """

    def __init__(self, path: str | Path, setting: str, most_nbytes: int | None = None) -> None:
        self.path = Path(path).absolute()
        self._setting = setting
        self._most_nbytes = most_nbytes
        self._fd = -1
        try:
            self._fd = _opened(self.path)
            self._end_torn_line()
        except OSError as error:
            self._give_up(error)

    def write(self, lines: str) -> None:
        """Adds whole lines: all of them, or none."""
        if self._fd < 0:
            return
        try:
            self._add(lines.encode())
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """What is written afterwards is dropped. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # a network's disk tells here what it could not keep
                os.close(fd)

    def __repr__(self) -> str:
        return f"OutFile({str(self.path)!r}{', closed' if self._fd < 0 else ''})"

    def _add(self, data: bytes) -> None:
        size = os.fstat(self._fd).st_size
        if self._most_nbytes is not None and size and size + len(data) > self._most_nbytes:
            self._put_aside()
            size = 0
        try:
            write_all(self._fd, data)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, size)  # no half of a line
            raise

    def _put_aside(self) -> None:
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{i + 1}") for i in range(_BACKUPS))]
        for newer, older in reversed(list(pairwise(names))):
            if newer.exists():
                newer.replace(older)
        self.close()
        self._fd = _opened(self.path)

    def _end_torn_line(self) -> None:
        """A run that was killed may have left half a line, which must not become the begin of ours."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) not in (b"\n", b""):
            write_all(self._fd, b"\n")

    def _give_up(self, error: OSError) -> None:
        self.close()
        tell(self._setting, self.path, error)


def publish(path: Path, data: Buffer, *, is_private: bool = False) -> None:
    """Writes a file as a whole: whoever opens it sees what was there before, or all of it.

    What is there keeps its mode; with ``is_private`` it is for this user alone, whatever was there.

    Raises:
        OSError: if it cannot be written.
    """
    real = trusted(path)
    if real.exists() and not real.is_file():  # a device
        fd = _opened(real)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        return
    fd, temporary = tempfile.mkstemp(prefix=f".{real.name}-", dir=real.parent)
    try:
        try:
            write_all(fd, data)
            if real.exists() and not is_private:
                os.fchmod(fd, stat.S_IMODE(real.stat().st_mode))
        finally:
            os.close(fd)
        os.replace(temporary, real)  # noqa: PTH105 - of text
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108 - of text
        raise


def trusted(path: Path) -> Path:
    """The file that ``path`` leads to, links followed; the folders on the way to it are made.

    Raises:
        PermissionError: if another user may have put something there for us to follow or to write to.
    """
    _refuse_planted(path)
    for folder in reversed(path.parents):
        if not folder.is_dir():
            folder.mkdir(0o700, exist_ok=True)  # another job may make it between these lines
    try:
        real = path.resolve()
    except RuntimeError as error:  # Python 3.11 and 3.12 say so
        raise OSError(errno.ELOOP, f"{path}: {os.strerror(errno.ELOOP)}") from error
    if real != path:
        _refuse_planted(real)
    return real


def tell(setting: str, path: Path, error: OSError) -> None:
    """Warns that a file is not written (any more)."""
    advice = _ADVICE.get(error.errno or 0, "name another path")
    warn_user(f"{setting}: {path} is not written from here on, training goes on without it: {error.strerror}; {advice}")


def _opened(path: Path) -> int:
    real = trusted(path)
    fd = os.open(real, _FLAGS, 0o600)
    try:
        # Looked at once more now that nobody can exchange it.
        _refuse_special(os.fstat(fd))
        _refuse_foreign(real, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _refuse_planted(path: Path) -> None:
    for place in (path, *path.parents[:-1]):
        try:
            found = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISDIR(found.st_mode):
            _refuse_foreign(place, found)


def _refuse_foreign(path: Path, found: os.stat_result) -> None:
    folder = path.parent.stat()
    if not folder.st_mode & stat.S_IWOTH or stat.S_ISCHR(found.st_mode):
        return
    if found.st_uid not in (os.geteuid(), folder.st_uid):
        kind = "symbolic link" if stat.S_ISLNK(found.st_mode) else "file"
        raise PermissionError(
            errno.EPERM, f"{path} is a {kind} of another user (uid {found.st_uid}) in a folder that all may write to"
        )
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise PermissionError(
            errno.EPERM, f"{path} has another name too (hard link), in a folder that all may write to"
        )


def _refuse_special(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISCHR(found.st_mode):
        raise PermissionError(errno.EPERM, "it is no file: a pipe whose reader stalls would stop training")
