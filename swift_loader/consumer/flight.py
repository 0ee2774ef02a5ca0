"""The flight recorder: what makes any batch of a loader again, as a file, and the command that does it.

Such a file is unpickled, so it can run code. It is written for this user alone, and read only where nobody else could
have written it. Knows nothing of how a batch is made; `swift_loader.consumer.replay` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import mmap
import os
import shlex
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from swift_loader.errors import ConfigError
from swift_loader.host.outfile import publish, trusted
from swift_loader.travel.payload import Unsendable, pack, unpack
from swift_loader.wire.recipe import Recipe

#: Stands at the end, after where the trainer was and the length of that, since what is packed is found by its distance
#: from the beginning.
_MARK = b"swift-loader replay 2\n"
_LENGTH = struct.Struct("<Q")
_TAIL_NBYTES = _LENGTH.size + len(_MARK)
_DIGEST_NBYTES = 6


@dataclass(frozen=True, slots=True)
class Place:
    """Where the trainer was, which is known before what it has pickled is looked at."""

    path: list[str]
    """Where it looked for modules."""
    folder: str
    """To which its paths were relative."""

    @classmethod
    def here(cls) -> Self:
        """Of this process."""
        try:
            folder = str(Path.cwd())
        except FileNotFoundError:  # removed under it
            folder = ""
        return cls([str(Path(folder, entry)) for entry in sys.path], folder)


def for_one_process(recipe: Recipe) -> Recipe:
    """The same batches, made without workers, and nothing written of them."""
    config = dataclasses.replace(
        recipe.config,
        worker_count=0,
        log=None,
        benchmark_file=None,
        trace_file=None,
        replay_file=None,
        engine="local",
        share_dataset=False,
    )
    return dataclasses.replace(recipe, config=config, memory=None)


def save(path: Path, recipe: Recipe) -> None:
    """Writes what makes the batches of ``recipe`` again, for this user alone, as a whole or not at all.

    Raises:
        ConfigError: if the dataset or a function cannot be pickled.
        OSError: if it cannot be written.
    """
    with _packed(path, recipe) as data:
        publish(path, data, is_private=True)


def save_at(named: Path, recipe: Recipe) -> Path:
    """The same at an error: beside the file of that name if that is of another loader, which may need it.

    Raises:
        ConfigError: if the dataset or a function cannot be pickled.
        OSError: if it cannot be written.
    """
    with _packed(named, recipe) as data:
        path = named
        if named.exists() and named.read_bytes() != data[:]:
            digest = hashlib.blake2b(data, digest_size=_DIGEST_NBYTES).hexdigest()
            path = named.with_name(f"{named.stem}-{digest}{named.suffix}")
        publish(path, data, is_private=True)
    return path


@contextlib.contextmanager
def _packed(path: Path, recipe: Recipe) -> Iterator[mmap.mmap]:
    """All that the file at ``path`` is to hold."""
    try:
        fd = pack(for_one_process(recipe), to="disk").fd
    except Unsendable as error:
        raise ConfigError(
            f"what makes the batches cannot be written to {path}: {error}. loader.replay() makes one in this process"
        ) from error.__cause__
    try:
        end = os.fstat(fd).st_size
        place = json.dumps(asdict(Place.here())).encode()
        os.pwrite(fd, place + _LENGTH.pack(len(place)) + _MARK, end)
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
            yield data
    finally:
        os.close(fd)


def load(path: Path, go: Callable[[Place], None]) -> Recipe:
    """Reads the file, if nobody but this user could have written it; what is pickled, after going where that was done.

    Raises:
        ConfigError: if that is not so, or it is no such file.
    """
    try:
        path.stat()  # before folders on the way to it are made
        fd = os.open(trusted(path.absolute()), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        _refuse_foreign(path, os.fstat(fd))
        place = _place_in(fd)
        if place is None:
            raise ConfigError(f"{path} is not what loader.save_replay() of this version writes")
        go(place)
        recipe: Recipe = unpack(os.dup(fd))
    finally:
        os.close(fd)
    return recipe


def _place_in(fd: int) -> Place | None:
    end = os.fstat(fd).st_size - _TAIL_NBYTES
    tail = os.pread(fd, _TAIL_NBYTES, max(0, end))
    if end < 0 or not tail.endswith(_MARK):
        return None
    (nbytes,) = _LENGTH.unpack_from(tail)
    return Place(**json.loads(os.pread(fd, nbytes, end - nbytes)))


class FlightRecorder:
    """Says how to make a batch again; writes the file for it at the first error, where ``replay_file`` names one."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        named = recipe.config.replay_file
        self._named = None if named is None else Path(named).absolute()
        self._written: Path | None = None
        self.trouble: str | None = None
        """Why the file that was named is not there."""

    def written_to(self, path: Path) -> None:
        """The user has written the file himself."""
        self._written = path

    def command(self, epoch: int, step: int) -> str:
        """What to type. Never raises: something else has gone wrong already."""
        if self._written is None and self._named is not None:
            try:
                self._written = save_at(self._named, self._recipe)
            except (OSError, ConfigError) as error:
                self.trouble = f"replay_file: {self._named} could not be written: {error}"
                self._named = None
        if self._written is None:
            return f"loader.replay(epoch={epoch}, step={step})"
        where = f"--epoch {epoch} --step {step} --rank {self._recipe.consumer}"
        return f"swift-loader replay --state {shlex.quote(str(self._written))} {where}"


def _refuse_foreign(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path} is no file")
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to another user (uid {found.st_uid}): reading it would run whatever he has put there"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}): reading it would run whatever "
            "they have put there. If nobody has: chmod 600"
        )
