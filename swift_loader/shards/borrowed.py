"""A client of another library's that has `list_objects`, `download_fileobj` and `upload_file`, as a store.

It is used as it is, in this process, one call after the other: for what has no address that we could ask ourselves.
"""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.errors import ConfigError, ShardError
from swift_loader.stores.protocol import Found

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_DRAFT = "swift-upload-"


class Borrowed(NamedTuple):
    """The client."""

    client: Any


class BorrowedStore:
    """The objects of a folder of one of its buckets, as a `Store`."""

    at_once = 1
    """Nobody knows whether such a client bears threads."""

    def __init__(self, client: Any, bucket: str, folder: str) -> None:
        self._client, self._bucket, self._folder = client, bucket, folder
        self._last: tuple[str, bytes] = ("", b"")

    @property
    def where(self) -> str:
        """See `Store`."""
        return f"{self._bucket}/{self._folder}".rstrip("/")

    def nbytes(self, name: str) -> int:
        """See `Store`."""
        for found in self.listed(name):
            if found.name == name:
                return found.nbytes
        raise FileNotFoundError(f"{self.where}/{name}: there is no such object")

    def read(self, name: str, offset: int, nbytes: int) -> bytes:
        """See `Store`."""
        data = bytes(self.whole(name)[offset : offset + nbytes])
        if len(data) != nbytes:
            raise ShardError.at("the object ends too early", offset + len(data), offset + nbytes).within(
                name, self.where
            )
        return data

    def whole(self, name: str) -> memoryview:
        """See `Store`."""
        if self._last[0] != name:
            self.nbytes(name)
            data = io.BytesIO()
            self._client.download_fileobj(self._bucket, self._key(name), data)
            self._last = (name, data.getvalue())
        return memoryview(self._last[1])

    def draft(self, name: str) -> BorrowedDraft:
        """See `Store`."""
        return BorrowedDraft(self, name)

    def replace(self, name: str, data: Buffer) -> None:
        """See `Store`."""
        draft = self.draft(name)
        try:
            draft.write([data])
            draft.send()
        finally:
            draft.discard()

    def delete(self, name: str) -> None:
        """See `Store`."""
        remove = getattr(self._client, "delete_object", None)
        if remove is None:
            raise ConfigError(f"{type(self._client).__name__} has no delete_object: {self.where}/{name} stays")
        remove(Bucket=self._bucket, Key=self._key(name))

    def listed(self, prefix: str = "") -> Iterator[Found]:
        """See `Store`. A list may come in pages."""
        begin, marker, found = self._key(""), "", []
        while True:
            page = self._client.list_objects(Bucket=self._bucket, Prefix=begin + prefix, Marker=marker)
            there = page.get("Contents") or []
            found += [Found(one["Key"][len(begin) :], one["Size"]) for one in there]
            if not page.get("IsTruncated") or not there:
                break
            marker = page.get("NextMarker") or there[-1]["Key"]
        yield from sorted(one for one in found if one.name and "/" not in one.name and not one.name.startswith("."))

    def send(self, name: str, path: str) -> None:
        """Writes an object of a file's bytes."""
        self._last = ("", b"")
        self._client.upload_file(path, self._bucket, self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    def __repr__(self) -> str:
        return f"BorrowedStore({self.where!r})"


class BorrowedDraft:
    """An object that is being written: a file here, until all of it is sent."""

    def __init__(self, store: BorrowedStore, name: str) -> None:
        self._store, self._name = store, name
        self._file = tempfile.NamedTemporaryFile(prefix=_DRAFT)  # noqa: SIM115 - closed by `discard`

    def write(self, pieces: Sequence[Buffer]) -> None:
        """See `Draft`."""
        for piece in pieces:
            self._file.write(piece)

    def publish(self) -> None:
        """See `Draft`. Two writers at once are not kept apart; one after the other are."""
        if any(found.name == self._name for found in self._store.listed(self._name)):
            raise FileExistsError(f"{self._store.where}/{self._name} is there already")
        self.send()

    def send(self) -> None:
        """Writes it over what may be there."""
        self._file.flush()
        self._store.send(self._name, self._file.name)

    def discard(self) -> None:
        """See `Draft`."""
        self._file.close()


class LocalCopy:
    """A set of such a store in a temporary folder, which goes with this object, or with its process."""

    def __init__(self, store: BorrowedStore) -> None:
        folder = tempfile.TemporaryDirectory(prefix="swift-set-")
        self.path = folder.name
        let_go_with(self, folder)
        for name, _ in store.listed():
            target = Path(self.path, name)
            with target.open("xb") as file:
                file.write(store.whole(name))


def let_go_with(owner: object, folder: tempfile.TemporaryDirectory[str]) -> None:
    """The folder goes with its owner; not with copies of it in forked processes."""
    weakref.finalize(owner, _let_go, folder, os.getpid())


def _let_go(folder: tempfile.TemporaryDirectory[str], pid: int) -> None:
    if os.getpid() == pid:
        folder.cleanup()
    else:  # a forked child's copy of this object: the folder is its parent's
        folder._finalizer.detach()  # type: ignore[attr-defined] # it is there in all versions
