"""Names: of samples (keys), of their fields, of shards; and what a table says of a field. Pure.

A member of a shard is called ``KEY.FIELD``. Readers of webdatasets cut that name at the first dot behind the last
slash, and lower the case of the field: what they would read as something else is refused when it is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.shards.tar import is_hidden

MOST_FIELDS = 64
MOST_DIMENSIONS = 4
MOST_KEY_NBYTES, MOST_NAME_NBYTES = 1000, 1024
#: Fields that cannot be read without running what stands in them.
PICKLED = frozenset({"pkl", "pickle", "pyd", "pth", "pt", "ten"})
#: A column has a number for each sample, also in the table: it is read without a look at the samples.
COLUMN = 1

_FIELD_NBYTES = 32
_FIELD = re.compile(r"[!-.0-\[\]-~]{1,32}", re.ASCII)  # what can be printed, but for blanks, / and \
_DTYPE = re.compile(r"\|[biu]1|[<>](?:[iu][248]|f[248]|f16|c(?:8|16|32))")
_MOST_ARRAY_NBYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Field:
    """A field of all samples of a shard.

    Attributes:
        name: Its name, in lower case.
        dtype: Of its arrays where they are alike in all samples, or of its column. Empty: bytes of any kind.
        shape: Of those arrays.
        skip: So many bytes come before an array's own: the header of .npy.
        flags: `COLUMN`, or 0.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    skip: int = 0
    flags: int = 0

    @property
    def has_column(self) -> bool:
        """Whether there is a number of each sample in the table."""
        return bool(self.flags & COLUMN)

    @property
    def array_nbytes(self) -> int | None:
        """What an array of it takes, without its header; None where samples differ."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize if self.dtype and not self.has_column else None

    def check(self) -> None:
        """Raises `ShardError` at what no field can be."""
        if not is_field(self.name):
            raise ShardError.at(f"{self.name!r} cannot be the name of a field")
        if self.dtype and not _DTYPE.fullmatch(self.dtype):
            raise ShardError.at(f"field {self.name!r} has a dtype that shards do not have", None, None, self.dtype)
        if self.flags & ~COLUMN or (self.has_column and (self.dtype not in ("<i8", "<f8") or self.shape or self.skip)):
            raise ShardError.at(f"field {self.name!r} is no column that shards have", None, None, self.dtype)
        if not self.dtype and (self.shape or self.skip):
            raise ShardError.at(f"field {self.name!r} has a shape, and no dtype", None, None, self.shape)
        if (self.array_nbytes or 0) + self.skip > _MOST_ARRAY_NBYTES:
            raise ShardError.at(f"field {self.name!r} has arrays too large to be", None, _MOST_ARRAY_NBYTES, self.shape)


def is_field(name: str) -> bool:
    """Whether a field may be called so."""
    return _FIELD.fullmatch(name) is not None and name == name.lower() and name[0] != "." and name[-1] != "."


def field_of(name: object) -> str:
    """A field's name as it is written.

    Raises:
        ShardError: if no field can be called so.
    """
    lowered = name.lower() if isinstance(name, str) else ""
    if not is_field(lowered):
        raise ShardError(
            f"a field cannot be called {name!r}: it is text of 1 to {_FIELD_NBYTES} letters, digits and signs, without "
            "blanks, slashes, and dots at its ends"
        )
    return lowered


def key_of(key: object) -> bytes:
    """A sample's key as it is written.

    Raises:
        ShardError: if readers of webdatasets would read another.
    """
    if not isinstance(key, str):
        raise ShardError(f"a key is text, not {type(key).__name__}").within(key=repr(key)[:100])
    try:
        written = key.encode()
    except UnicodeEncodeError:
        written = b""
    why = _trouble_with(written)
    if why:
        raise ShardError(f"this cannot be a sample's key: {why}").within(key=key[:100])
    return written


def _trouble_with(key: bytes) -> str:
    base = key[key.rfind(b"/") + 1 :]
    if not base or len(key) > MOST_KEY_NBYTES:
        return f"a key has 1 to {MOST_KEY_NBYTES} bytes of UTF-8 and does not end with a slash"
    if b"." in base:
        return "there is a dot behind its last slash, where the name of a field would begin"
    if b"\0" in key or b"\\" in key:
        return "it has a zero byte or a backslash"
    return trouble_with_path(key) or ("its first part is in __ __, which readers pass over" if is_hidden(key) else "")


def trouble_with_path(name: bytes) -> str:
    """What is wrong with a path that should lead down from where it stands; nothing if it is right."""
    if name.startswith(b"/"):
        return "it begins with a slash"
    parts = name.split(b"/") if b"/" in name or b"." in name else (name,)
    return "" if all(part not in (b"", b".", b"..") for part in parts) else "one of its parts is empty, '.' or '..'"
