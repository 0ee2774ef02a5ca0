"""How a dataset and its settings get to the workers: once, in a memory file that all of them map.

Pickle where it will do, dill (`recurse=True`) where it will not and for whatever lives in ``__main__``: workers have
another ``__main__``, so such classes and functions go by value. Large arrays lie in the file as they are and are
mapped copy-on-write, so that the workers of a host share one copy.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import re
import struct
import sys
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from swift_loader.batch.layout import aligned
from swift_loader.pool.memfile import memory_file

_HEAD = struct.Struct("<QQ")
#: Smaller buffers stay in the pickle.
_OUT_OF_BAND_NBYTES = 64 * 1024


class Unsendable(Exception):
    """Neither pickle nor dill can send it. The cause is what pickle said."""


def pack(value: Any) -> tuple[int, bool]:
    """Writes ``value`` into a memory file; gives back its descriptor and whether dill is needed to read it.

    Raises:
        Unsendable: if it cannot be written.
    """
    buffers: list[memoryview] = []

    def keep_inline(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _OUT_OF_BAND_NBYTES:
            return True
        buffers.append(raw)
        return False

    out = io.BytesIO()
    try:
        _NothingOfMain(out, protocol=5, buffer_callback=keep_inline).dump(value)
        needs_dill = False
    except Exception as error:  # noqa: BLE001 - a class may raise anything here; dill is asked next
        buffers.clear()
        out = _with_dill(value, keep_inline, error)
        needs_dill = True
    return _write(out.getbuffer(), buffers), needs_dill


def unpack(fd: int) -> Any:
    """The value again. Takes the descriptor over."""
    try:
        mapping = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(fd)
    view = memoryview(mapping)
    stream_nbytes, table_nbytes = _HEAD.unpack_from(view)
    table_start = _HEAD.size + stream_nbytes
    spans = pickle.loads(view[table_start : table_start + table_nbytes])  # noqa: S301 - written by our consumer
    buffers = [view[start : start + nbytes] for start, nbytes in spans]
    return pickle.loads(view[_HEAD.size : table_start], buffers=buffers)  # noqa: S301 - as above


def _write(stream: memoryview, buffers: list[memoryview]) -> int:
    fd = memory_file("swift-payload")
    try:
        _fill(fd, stream, buffers)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _fill(fd: int, stream: memoryview, buffers: list[memoryview]) -> None:
    with open(fd, "wb", closefd=False) as file:
        # The table of places is written before the buffers, so its own size must be known first: each place is
        # counted from the start of the file, and 20 bytes are more than any entry of it takes.
        start = aligned(_HEAD.size + stream.nbytes + 64 + 20 * len(buffers))
        spans = []
        for buffer in buffers:
            spans.append((start, buffer.nbytes))
            start = aligned(start + buffer.nbytes)
        table = pickle.dumps(spans, protocol=5)
        file.write(_HEAD.pack(stream.nbytes, len(table)))
        file.write(stream)
        file.write(table)
        for (place, _), buffer in zip(spans, buffers, strict=True):
            file.seek(place)
            file.write(buffer)


def _with_dill(value: Any, keep_inline: Any, first: Exception) -> io.BytesIO:
    import dill  # noqa: PLC0415 - slow to import, and most never need it

    out = io.BytesIO()
    try:
        pickler = dill.Pickler(out, protocol=5, recurse=True, buffer_callback=keep_inline)
        pickler.reducer_override = _arrays_beside  # written in Python, it asks the instance
        pickler.dump(value)
    except Exception as second:  # noqa: BLE001 - whatever it was, it cannot be sent
        raise Unsendable(f"{type(second).__name__}: {second}") from (
            first if not isinstance(first, _IsOfMain) else second
        )
    return out


def _arrays_beside(obj: Any) -> Any:
    return obj.__reduce_ex__(5) if type(obj) is np.ndarray else NotImplemented  # dill would keep arrays in the pickle


class _IsOfMain(Exception):
    """What was to be pickled by name lives in ``__main__``."""


class _NothingOfMain(pickle.Pickler):
    """pickle, but refuses what a worker would look for in its own ``__main__``."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and obj.__module__ in ("__main__", "__mp_main__"):
            raise _IsOfMain(obj.__qualname__)
        return NotImplemented


def modules_to_preload(dataset_class: type, fd: int, *, needs_dill: bool) -> list[str]:
    """What every worker will import for this payload and is better imported once, before they are forked."""
    modules = ["dill"] if needs_dill else []
    if "torch" in sys.modules and (_comes_from_torch(dataset_class) or _mentions_torch(fd)):
        modules.append("torch")
    return modules


def modules_of_class(dataset_class: Any) -> list[str]:
    """The same, as far as the class tells it, before there is a payload."""
    is_of_torch = "torch" in sys.modules and isinstance(dataset_class, type) and _comes_from_torch(dataset_class)
    return ["torch"] if is_of_torch else []


def _comes_from_torch(dataset_class: type) -> bool:
    if any(base.__module__.partition(".")[0] == "torch" for base in dataset_class.__mro__):
        return True
    home = sys.modules.get(dataset_class.__module__)
    if home is None or home.__name__ in ("__main__", "__mp_main__"):
        return False  # goes by value, and takes along only what it uses
    return any(_is_of_torch(value) for value in list(vars(home).values()))


def _is_of_torch(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] == "torch"


#: As a text of its own in the pickle, with its length before it: "torch", or what begins with "torch.". A path that has
#: the word in it does not count.
_NAME_OF_TORCH = re.compile(rb"\x8c(?:\x05torch|[\x06-\xff]torch\.)")


def _mentions_torch(fd: int) -> bool:
    with open(os.dup(fd), "rb") as file:  # noqa: PTH123 - a descriptor
        file.seek(0)
        stream_nbytes, _ = _HEAD.unpack(file.read(_HEAD.size))
        return _NAME_OF_TORCH.search(file.read(stream_nbytes)) is not None
