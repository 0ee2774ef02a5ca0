"""What makes things again in a worker: the functions that the pickle of a payload names. Imports nothing heavy, since
each worker imports it; torch only where a tensor has come.
"""

from __future__ import annotations

import functools
import importlib
import mmap
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: So large a file may be mapped as no memory could hold. Python knows the name from 3.13 on.
_MAP_NORESERVE = 0x4000

# ---- arrays and tensors ----------------------------------------------------------------------------------------------


def array_of(buffer: Any, first: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Any:
    """An array in ``buffer``, whose first item begins at byte ``first``."""
    return np.ndarray(shape, dtype, buffer, first, strides)


def file_mapped(path: str, mode: Any, start: int, nbytes: int) -> np.memmap:
    """A stretch of a file, as bytes."""
    return np.memmap(path, np.uint8, mode, start, (nbytes,))


def array_in(
    whole: np.memmap, first: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: Any
) -> Any:
    """An array in a mapped file; a memmap if it has the offset of one."""
    item = whole[first : first + dtype.itemsize].view(dtype)
    array: Any = np.lib.stride_tricks.as_strided(item, shape, strides, subok=True, writeable=whole.flags.writeable)
    if offset is None:
        return array.view(np.ndarray)
    array.offset = offset  # of the array that the user has mapped
    return array


def tensor_of(flat: Any, dtype: str, first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A tensor that looks at the memory of ``flat``."""
    torch = importlib.import_module("torch")
    kind = getattr(torch, dtype)
    if flat is None:
        return torch.empty_strided(shape, strides, dtype=kind)
    return torch.empty(0, dtype=kind).set_(flat.untyped_storage(), first, shape, strides)


def bytes_of(buffer: Any) -> Any:
    """Memory of tensors, as a tensor of bytes."""
    torch = importlib.import_module("torch")
    return torch.frombuffer(buffer, dtype=torch.uint8)


def file_shared(path: str, start: int, nbytes: int, is_writable: bool) -> Any:  # noqa: FBT001 - pickle names nothing
    """The same, in a file: what is written there others see, unless it may not be written; then nobody does."""
    try:
        with Path(path).open("r+b" if is_writable else "rb") as file:
            page = start - start % mmap.ALLOCATIONGRANULARITY
            flags = mmap.MAP_SHARED if is_writable else mmap.MAP_PRIVATE | _MAP_NORESERVE
            mapping = mmap.mmap(file.fileno(), start - page + nbytes, flags, offset=page)
    except OSError as error:
        raise OSError(error.errno, f"the memory of a tensor lies in {path}, which cannot be mapped: {error}") from error
    return bytes_of(memoryview(mapping)[start - page :])


# ---- files -----------------------------------------------------------------------------------------------------------


def opened(path: str, mode: str, place: int, how: dict[str, Any]) -> Any:
    """A file again: as it is, at the place where the other one was."""
    file = open(path, mode, opener=_as_it_is, **how)  # noqa: SIM115 - whoever gets it closes it
    if "a" not in mode:
        file.seek(place)
    return file


def closed(mode: str, how: dict[str, Any]) -> Any:
    """A file that nothing can be read from any more."""
    with open(os.devnull, mode, **how) as file:  # noqa: PTH123 - ``how`` says what kind of file it is
        return file


def _as_it_is(path: str, flags: int) -> int:
    return os.open(path, flags & ~(os.O_TRUNC | os.O_CREAT | os.O_EXCL))


# ---- classes and functions -------------------------------------------------------------------------------------------


def cached(make: Callable[..., Any], args: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
    """A function with a cache, which is empty; still to be filled if it was made by value."""
    return functools.lru_cache(**parameters)(make(*args) if args else make)


def fill_cached(wrapper: Any, state: tuple[Callable[..., Any], Any]) -> Any:
    """What cloudpickle does with a function that it has made."""
    fill, inner = state
    fill(wrapper.__wrapped__, inner)
    return functools.update_wrapper(wrapper, wrapper.__wrapped__)


def fill_enum(kind: Any, state: tuple[Callable[..., Any], Any, dict[str, dict[str, Any]]]) -> Any:
    """What cloudpickle does with a class, and what its members have besides their values."""
    fill, inner, members = state
    fill(kind, inner)
    for name, attributes in members.items():
        vars(kind.__members__[name]).update(attributes)
    return kind


class _Gone:
    """Nothing holds it."""


def dead_reference() -> weakref.ref[Any]:
    """To what is not there any more."""
    return weakref.ref(_Gone())
