"""What is said in the meta part of frames, by schema. The only file that knows msgspec, which is imported with it.

Nothing here can name code: numbers, texts and bytes of bounded length, in places that a type gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from swift_loader import __version__
from swift_loader.errors import ConfigError, ProtocolError
from swift_loader.net.arrays import Described

try:
    import msgspec
    from msgspec import Meta, Struct
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise ConfigError(
        "streams and loaders over the network need the package msgspec: pip install 'swift-loader[server]'"
    ) from error

PACKAGE = __version__
LOWEST = HIGHEST = 1
"""The versions of the protocol that this package speaks."""

Name = Annotated[str, Meta(max_length=200)]
Text = Annotated[str, Meta(max_length=65_536)]
Count = Annotated[int, Meta(ge=0, le=(1 << 62))]


class Hello(Struct, frozen=True):
    """The first word of a client; fields that another version adds are passed over."""

    lowest: Count
    highest: Count
    package: Name
    asks_for: Name
    """ "stream" or "loader"."""
    client: Name = ""
    session: Annotated[bytes, Meta(max_length=16)] = b""
    """A stream's session to go on with."""
    received: Count = 0
    """What the client has of it."""
    hwm: Count = 0
    loader: Name = ""
    """The loader that the client has seen elsewhere."""
    consumer: Count = 0
    most_nbytes: Count = 0
    takes_files: bool = False
    """Batches may come as files in memory, by the connection's own means."""


class Welcome(Struct, frozen=True):
    """The first word of a server."""

    version: Count
    package: Name
    session: Annotated[bytes, Meta(max_length=16)] = b""
    width: Count = 0
    loader: Name = ""
    facts: Annotated[bytes, Meta(max_length=1 << 20)] = b""


class Refused(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Why a client is sent away."""

    why: Name
    text: Annotated[str, Meta(max_length=1000)]


class Batch(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One batch of a stream: its arrays lie in the bulk."""

    epoch: Count
    step: Count
    arrays: Annotated[list[tuple[Name, Annotated[list[Count], Meta(max_length=32)], bool]], Meta(max_length=4096)]


class End(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An epoch of a stream is over."""

    epoch: Count
    step: Count


class Failure(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A stream, or a batch of a loader, could not be gone on with."""

    epoch: Count
    step: Count
    stage: Name
    type_name: Annotated[str, Meta(max_length=4096)]
    text: Text
    traceback: Text
    index: int | None = None
    leaves: bool = False
    """Nothing follows."""


Said = TypeVar("Said", bound=Struct)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {}


def write(said: Struct) -> bytes:
    """The meta part of a frame."""
    return _encoder.encode(said)


def read(kind: type[Said], meta: bytes | bytearray | memoryview) -> Said:
    """What a meta part says.

    Raises:
        ProtocolError: if it is not of that kind.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return decoder.decode(meta)  # type: ignore[no-any-return] # of that kind
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"what came is no {kind.__name__}: {str(error)[:200]}") from error


def hello(asks_for: str, **more: Any) -> bytes:
    """The first word of a client of this version."""
    return write(Hello(LOWEST, HIGHEST, __version__, asks_for, **more))


def common_version(said: Hello) -> int | None:
    """The highest version of the protocol that both speak; None where there is none."""
    version = min(said.highest, HIGHEST)
    return version if version >= max(said.lowest, LOWEST) else None


def described(batch: Batch) -> list[Described]:
    """The arrays that a batch announces."""
    return [Described(dtype, tuple(shape), is_fortran) for dtype, shape, is_fortran in batch.arrays]


# ---- of loaders ------------------------------------------------------------------------------------------------------


class Facts(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a loader's plan is made of."""

    sample_count: Count
    batch_size: Annotated[int, Meta(ge=1, le=1 << 40)]
    consumer_count: Annotated[int, Meta(ge=1, le=1 << 31)]
    shuffle: bool
    seed: Annotated[int, Meta(ge=0)]
    window: Count
    mix: Count
    even: Name
    drop_last: bool
    elastic: bool
    runs: Annotated[list[Count], Meta(max_length=1 << 17)] | None
    random_per: Name
    dataset: Name = ""
    """What its class is called; and digests of what that is built with, and of its source and the collate's."""
    arguments: Name = ""
    code: Name = ""
    groups: Annotated[int, Meta(ge=1, le=1 << 31)] = 1
    """Of the runs."""


class Leaf(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="l"):
    """The end of a path in a batch."""

    path: Annotated[str, Meta(max_length=4096)]


class Branch(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="b"):
    """A container in a batch."""

    kind: Literal["dict", "list", "tuple"]
    keys: Annotated[list[str | int | float | bool | None], Meta(max_length=4096)]
    children: Annotated[list[Leaf | Branch], Meta(max_length=4096)]
    path: Annotated[str, Meta(max_length=4096)]


class Column(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One leaf of a batch, for all rows."""

    kind: Literal["array", "objects"]
    dtype: Annotated[str, Meta(max_length=40)]
    shape: Annotated[list[Count], Meta(max_length=32)]
    viewed_as: Annotated[str, Meta(max_length=40)]


class Spec(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The make of a batch. Its sizes are computed from types and shapes, and its places looked at."""

    kind: Literal["columns", "object"]
    structure: Leaf | Branch
    columns: Annotated[list[Column], Meta(max_length=4096)]
    capacity: Count
    offsets: Annotated[list[Count], Meta(max_length=4096)]
    nbytes: Count


class Parcel(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A batch of a loader: in the bulk are its columns and, behind them, its objects."""

    epoch: Count
    step: Count
    rows: Count
    objects_nbytes: Count
    cost: Annotated[list[Annotated[int, Meta(ge=-1, le=(1 << 62))]], Meta(min_length=9, max_length=9)]
    """What it cost its worker."""
    held_ns: Count
    """From when it was asked for until its sending began; the rest of the time it was on its way."""
    skipped: Annotated[list[tuple[Count, Annotated[str, Meta(max_length=400)]]], Meta(max_length=65_536)]
    spec: Spec


class Counted(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a server of the client's own job has learnt of the dataset."""

    sample_count: Count
    runs: Annotated[list[Count], Meta(max_length=1 << 17)] | None
    groups: Annotated[int, Meta(ge=1, le=1 << 31)] = 1


class Carried(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A batch as a worker of the client's own job has made it: in the bulk is what of the slot is used."""

    epoch: Count
    step: Count
    rows: Count
    cost: Annotated[list[Annotated[int, Meta(ge=-1, le=(1 << 62))]], Meta(min_length=9, max_length=9)]
    held_ns: Count
    """From when the order came to when this left."""
    skipped: Annotated[list[tuple[Count, str]], Meta(max_length=65_536)]
    nbytes: Count
    layout: Count
    """Its number, on this connection."""
    packed: bytes
    """The layout itself, the first time."""
    stream: bytes | None
    spans: list[tuple[Count, Count]]


class Ext(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An array or a number of numpy's or torch's, in an object."""

    dtype: Annotated[str, Meta(max_length=40)]
    shape: Annotated[list[Count], Meta(max_length=32)]
    data: bytes


def write_value(value: Any) -> bytes:
    """Numbers, texts, bytes, lists and dicts, and `Extension`."""
    return _encoder.encode(value)


def extension(code: int, data: bytes) -> Any:
    """Something else, by a number."""
    return msgspec.msgpack.Ext(code, data)


def read_value(data: bytes | memoryview, extensions: Callable[[int, memoryview], Any]) -> Any:
    """What `write_value` wrote.

    Raises:
        ProtocolError: if it is nothing of that.
    """
    try:
        return msgspec.msgpack.Decoder(ext_hook=extensions).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise ProtocolError(f"what came is no value: {str(error)[:200]}") from error
