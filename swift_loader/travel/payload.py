"""How a dataset and its settings get to the workers: once, in a memory file that all of them map.

    head | the pickle | arrays and tensors, each at a place of its own | table: the places, and what is imported first

The pickle is written by `carrier`, straight into the file; large arrays and tensors are written from where they lie.
Workers map the file copy-on-write, so that those of a host share one copy.
"""

from __future__ import annotations

import importlib
import mmap
import os
import pickle
import struct
from dataclasses import dataclass
from typing import Any, Literal

from swift_loader.host.memfile import memory_file
from swift_loader.travel import elsewhere

Destination = Literal["worker", "host", "disk"]

#: The length of the pickle, where the table begins, and its length.
_HEAD = struct.Struct("<QQQ")


class Unsendable(Exception):
    """It cannot be pickled. Says which part of it, and the cause is what that raised."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What was written, and what is known of it."""

    fd: int
    """The memory file."""
    is_by_value: bool
    """Classes or functions travel with it, which no worker could import."""
    stream_nbytes: int
    """The pickle, of which each worker makes objects of its own; all else is shared."""
    mentioned: frozenset[str]
    """The packages that it cannot be loaded without, and those that code in it imports."""
    named: tuple[Any, ...]
    """Classes and functions that workers import."""


def pack(value: Any, to: Destination = "worker") -> Packed:
    """Writes ``value`` into a memory file.

    Args:
        value: Anything; a `Recipe` as a rule.
        to: Who is to read it: a worker of this process, a process of another host, or whoever opens a file when this
            process has gone. To a disk goes no secret, and only to workers what is shared with this process.

    Raises:
        Unsendable: if it cannot be pickled.
    """
    from swift_loader.travel.carrier import Carrier  # noqa: PLC0415 - workers read only

    fd = memory_file("swift-payload")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(bytes(_HEAD.size))
            carrier = Carrier(file, to)
            carrier.carry(value)
            file.flush()
            stream_nbytes = file.tell() - _HEAD.size
            spans = carrier.bulk.lay(fd, file.tell())
            table = pickle.dumps((spans, carrier.places, sorted(carrier.submodules)), protocol=5)
            start = file.seek(0, os.SEEK_END)
            file.write(table)
            file.seek(0)
            file.write(_HEAD.pack(stream_nbytes, start, len(table)))
    except BaseException:
        os.close(fd)
        raise
    return Packed(fd, carrier.is_by_value, stream_nbytes, frozenset(carrier.mentioned), tuple(carrier.named.values()))


def unpack(fd: int) -> Any:
    """The value again. Takes the descriptor over."""
    try:
        mapping = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(fd)
    view = memoryview(mapping)
    stream_nbytes, table_start, table_nbytes = _HEAD.unpack_from(view)
    table = pickle.loads(view[table_start : table_start + table_nbytes])  # noqa: S301 - written by our consumer
    spans, places, submodules = table
    elsewhere.know(places)
    for name in submodules:
        importlib.import_module(name)
    buffers = [view[start : start + nbytes] for start, nbytes in spans]
    try:
        return pickle.loads(view[_HEAD.size : _HEAD.size + stream_nbytes], buffers=buffers)  # noqa: S301 - as above
    except RecursionError as error:
        raise RecursionError(
            f"{error}. Either objects hold one another too deeply for pickle, or a class has a __getattr__ that asks "
            "for an attribute of its own, which an object that is being loaded does not have yet: let it raise "
            'AttributeError for names that begin with "__"'
        ) from error
