"""What holds a set: a folder, or a bucket's. A protocol, so that the rest does not know which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class Found(NamedTuple):
    """An object of a store."""

    name: str
    nbytes: int


class Draft(Protocol):
    """An object that is being written. Nobody sees it before it is published."""

    def write(self, pieces: Sequence[Buffer]) -> None:
        """Adds bytes at its end."""

    def publish(self) -> None:
        """From now on it is there, whole.

        Raises:
            FileExistsError: if there is one of that name.
        """

    def discard(self) -> None:
        """It never was. May be called after all."""


@runtime_checkable
class Store(Protocol):
    """Objects with names; a name once given is not given again, but for `replace`."""

    at_once: int
    """So many objects may be written at a time, each by a thread."""

    @property
    def where(self) -> str:
        """What users know it as."""

    def nbytes(self, name: str) -> int:
        """What an object takes. FileNotFoundError if there is none."""

    def read(self, name: str, offset: int, nbytes: int) -> Buffer:
        """Part of it, all of the bytes asked for. FileNotFoundError; `ShardError` where it ends before."""

    def whole(self, name: str) -> Buffer:
        """All of it; where it is a file of this machine, not read but mapped."""

    def draft(self, name: str) -> Draft:
        """Begins a new one."""

    def replace(self, name: str, data: Buffer) -> None:
        """Writes one that may be there already: readers see the old one, or the new."""

    def delete(self, name: str) -> None:
        """Removes one, if it is there."""

    def listed(self, prefix: str = "") -> Iterator[Found]:
        """All objects whose names begin so, in the order of names; those in folders within are left out."""
