"""Buckets and servers of objects, by obstore. The only file that imports it.

Its threads and its wait for the network are global and do not survive a fork: in a child of a process that has asked
anything by it, a request would wait for ever, and a new store would stop those of the parent too. So only processes of
our own ask by it that fork no more: the fetcher, and the commands; a child is told by an error.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.systems import in_forked_children
from swift_loader.host.warn import warn_user
from swift_loader.stores.answers import Kind, Trouble, told
from swift_loader.stores.asking import made
from swift_loader.stores.protocol import Found

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

    from swift_loader.shards.url import Place
    from swift_loader.stores.client import Client

#: How addresses begin.
SCHEMES = ("s3", "gs", "az", "https", "http")
#: One request writes so much at most: such an object is there whole or not at all, and its etag is that of its bytes.
_PUT_AT_ONCE = 256 << 20
_IN_MEMORY = 128 << 20
_PART_NBYTES = 16 << 20
_MD5 = re.compile(r'"?([0-9a-f]{32})"?\Z')

_state = {"used": False, "forked": False}


def _after_fork() -> None:
    _state["forked"] = _state["forked"] or _state["used"]


in_forked_children(_after_fork)


def _obstore() -> Any:
    """The package, if this process may use it."""
    if _state["forked"]:
        raise ConfigError(
            "this process was forked from one that had asked an object store, and cannot ask one itself: its requests "
            "would never be answered. Read by ShardDataset(url, client=...), which asks the host's fetcher; or start "
            "this process by spawn"
        )
    try:
        found = importlib.import_module("obstore")
        importlib.import_module("obstore.store")
    except ImportError as error:
        raise ConfigError(
            "object stores (s3://, gs://, az://, https://) are read with obstore, which is not installed: "
            "pip install 'swift-loader[shards]'"
        ) from error
    _state["used"] = True
    return found


class Answer(NamedTuple):
    """What a store has begun to send."""

    etag: str | None
    nbytes: int
    """Of the whole object."""
    begin: int
    """The first byte that comes."""
    end: int
    """Behind the last one, as the store says."""
    pieces: AsyncIterator[Buffer]
    """Raises `Failed`."""


class Failed(Exception):
    """A request was refused, or not answered; knows nothing that must not be told."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.sentence())
        self.trouble = trouble


class Objects:
    """The objects of a folder of a bucket, as a `protocol.Store`.

    Args:
        place: Where the folder is.
        client: Who is let in.
        retries: Whether requests that fail are repeated a few times, by the client of stores itself.
    """

    at_once = 4
    """One connection to a store is slower than what makes shards."""

    def __init__(self, place: Place, client: Client, *, retries: bool = True) -> None:
        if not place.host:
            raise ConfigError(f"{place.scheme}:// names no bucket: {place.scheme}://bucket/folder")
        self._obstore = _obstore()
        self._place, self._client, self._retries = place, client, retries
        self._store = made(self._obstore.store, self._place, self._client, retries=retries)
        self._has_md5 = True

    @property
    def where(self) -> str:
        """See `Store`."""
        return f"{self._place.scheme}://{self._place.host}/{self._place.path}".rstrip("/")

    def __repr__(self) -> str:
        return f"Objects({self.where!r})"

    def renew(self) -> None:
        """Asks for the keys again, and takes new connections."""
        self._store = made(self._obstore.store, self._place, self._client, retries=self._retries)

    async def begun(self, name: str, begin: int, end: int | None, etag: str | None, piece_nbytes: int) -> Answer:
        """Bytes of an object, asked for once. Lengths are not compared here.

        Args:
            name: Of the object.
            begin: The first byte.
            end: Behind the last one; None: all of the object.
            etag: What the object must be still.
            piece_nbytes: So much is given at a time, or a little more.

        Raises:
            Failed: if they cannot be had.
        """
        options = _options(begin, end, etag)
        try:
            got = await self._obstore.get_async(self._store, name, options=options)
        except Exception as error:  # noqa: BLE001 - it is told by what it says, and by nothing of its own
            raise Failed(_trouble(error)) from None
        meta, (first, last) = got.meta, got.range
        return Answer(meta["e_tag"], meta["size"], first, last, _pieces(got, piece_nbytes))

    async def found(self) -> list[Found]:
        """What `listed` gives, asked for once."""
        try:
            listed = await self._obstore.list_with_delimiter_async(self._store)
        except Exception as error:  # noqa: BLE001 - as above
            raise Failed(_trouble(error)) from None
        return self._found(listed, "")

    def signed(self, name: str, method: str = "GET") -> str | None:
        """An address at which that can be asked without keys, for a minute; None where there are none."""
        with suppress(Exception):
            url: str = self._obstore.sign(self._store, method, name, timedelta(seconds=60))
            return url
        return None

    def nbytes(self, name: str) -> int:
        """See `Store`."""
        nbytes: int = self._asked(name, lambda: self._obstore.head(self._store, name)["size"])
        return nbytes

    def read(self, name: str, offset: int, nbytes: int) -> Buffer:
        """See `Store`."""
        if not nbytes:
            return b""
        options = _options(offset, offset + nbytes, None)
        data = self._asked(name, lambda: self._obstore.get(self._store, name, options=options).bytes())
        if len(data) != nbytes:  # the object ends there, or the answer was cut
            data = self._asked(name, lambda: self._obstore.get(self._store, name, options=options).bytes())
        if len(data) != nbytes:
            error = ShardError.at("the object ends too early", offset + len(data), offset + nbytes)
            raise error.within(name, self.where)
        return memoryview(data)

    def whole(self, name: str) -> Buffer:
        """See `Store`."""

        def ask() -> Any:
            got = self._obstore.get(self._store, name)
            data = got.bytes()
            if len(data) != got.meta["size"]:
                raise Failed(Trouble(Kind.ODD, None))
            return data

        return memoryview(self._asked(name, ask))

    def draft(self, name: str) -> ObjectDraft:
        """See `Store`."""
        return ObjectDraft(self, name)

    def replace(self, name: str, data: Buffer) -> None:
        """See `Store`."""
        self.put(name, bytes(data), mode="overwrite")

    def delete(self, name: str) -> None:
        """See `Store`."""
        with suppress(FileNotFoundError):
            self._asked(name, lambda: self._obstore.delete(self._store, name))

    def listed(self, prefix: str = "") -> Iterator[Found]:
        """See `Store`."""
        listed = self._asked(None, lambda: self._obstore.list_with_delimiter(self._store))
        yield from self._found(listed, prefix)

    def put(self, name: str, file: Any, *, mode: str, **how: Any) -> None:
        """Writes an object, at once; ``mode`` is ``create`` or ``overwrite``.

        Raises:
            FileExistsError: if it is there, and is to be created.
        """
        put = self._obstore.put
        try:
            result = self._asked(name, lambda: put(self._store, name, file, mode=mode, **how))
        except NotImplementedError:
            # Swift's own S3 has no conditions. Who lists first sees what was there before; not who writes just now.
            if any(found.name == name for found in self.listed(name)):
                raise FileExistsError(f"{self.where}/{name} is there already") from None
            warn_user(f"{self.where} cannot keep two writers apart: have one write at a time")
            result = self._asked(name, lambda: put(self._store, name, file, mode="overwrite", **how))
        if isinstance(file, bytes):
            self._look_at(name, file, result.get("e_tag"))

    def _look_at(self, name: str, data: bytes, etag: str | None) -> None:
        """Compares what has arrived with what was sent, where the store tells."""
        found = _MD5.match(etag or "") if self._has_md5 else None
        if found is None or found[1] == hashlib.md5(data, usedforsecurity=False).hexdigest():
            return
        if bytes(self.whole(name)) != data:
            self.delete(name)
            raise ShardError("what has arrived is not what was sent: it is removed").within(name, self.where)
        self._has_md5 = False  # its etags are of something else: of what it has encrypted

    def _asked(self, name: str | None, ask: Callable[[], Any]) -> Any:
        """What ``ask`` gives; asked again where keys had expired, or the answer was odd."""
        _obstore()  # in a child, an error in words
        trouble = Trouble(Kind.LATER, None)
        for is_last in (False, True):
            try:
                return ask()
            except Failed as error:
                trouble = error.trouble
            except Exception as error:  # noqa: BLE001 - it is told by what it says, and by nothing of its own
                trouble = _trouble(error)
            if is_last or trouble.kind not in (Kind.EXPIRED, Kind.ODD):
                break
            self.renew()
        raise self.error(trouble, name)

    def error(self, trouble: Trouble, name: str | None) -> Exception:
        """The error that tells of it, as a `Store` has it."""
        path = f"{self.where}/{name}" if name else self.where
        if trouble.kind is Kind.MISSING:
            return FileNotFoundError(f"{path}: {trouble.sentence()}")
        if trouble.kind is Kind.EXISTS:
            return FileExistsError(f"{path}: {trouble.sentence()}")
        if trouble.kind is Kind.UNSUPPORTED:
            return NotImplementedError(f"{path}: {trouble.sentence()}")
        return ShardError(trouble.sentence()).within(name, self.where)

    def _found(self, listed: Any, prefix: str) -> list[Found]:
        # A folder itself is listed as an object of no name by some servers.
        found = [Found(one["path"].rpartition("/")[2], one["size"]) for one in listed["objects"]]
        return sorted(one for one in found if one.name.startswith(prefix) and one.name and not one.name.startswith("."))


class ObjectDraft:
    """An object that is being written, as a `protocol.Draft`: here, until all of it is sent."""

    def __init__(self, objects: Objects, name: str) -> None:
        self._objects, self._name = objects, name
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by publish, or discard

    def write(self, pieces: Sequence[Buffer]) -> None:
        """See `Draft`."""
        for piece in pieces:
            self._file.write(piece)

    def publish(self) -> None:
        """See `Draft`."""
        nbytes = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        if nbytes <= _PUT_AT_ONCE:
            data = self._file.read()
            self._file.close()  # it is in memory once, and not twice, while it is sent
            self._objects.put(self._name, data, mode="create", use_multipart=False)
            return
        # Parts cannot be put on a condition everywhere; they too are nothing that is seen before all of them are there.
        with suppress(FileNotFoundError):
            self._objects.nbytes(self._name)
            raise FileExistsError(f"{self._objects.where}/{self._name} is there already")
        how = {"use_multipart": True, "chunk_size": _PART_NBYTES, "max_concurrency": 4}
        self._objects.put(self._name, self._file, mode="overwrite", **how)

    def discard(self) -> None:
        """See `Draft`."""
        self._file.close()


def _options(begin: int, end: int | None, etag: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {} if end is None else {"range": (begin, end)}
    return options if etag is None else {**options, "if_match": etag}


async def _pieces(got: Any, nbytes: int) -> AsyncIterator[Buffer]:
    try:
        async for piece in got.stream(min_chunk_size=nbytes):
            yield piece
    except Exception as error:  # noqa: BLE001 - it is told by what it says, and by nothing of its own
        raise Failed(_trouble(error)) from None


def _trouble(error: Exception) -> Trouble:
    return told(type(error).__name__, str(error))
