"""What can be reached from a dataset: its attributes, what they hold, and the globals that its own code names.

The walk calls nothing of the user's: no property, no ``__getattr__``, no iterator of theirs. It is bounded, and goes
from near to far, through what is large last: the transforms of a dataset are found though it lists a million files.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from swift_loader.worker.libraries import is_of_a_library

#: So many objects are looked at, in some ten milliseconds. Few datasets hold so many.
_MOST = 20_000
#: Of what one object holds so much is looked at in its turn, and so much more at the end.
_NEAR, _MORE = 32, 1_000
_ATOMS = frozenset({
    int, float, complex, bool, str, bytes, bytearray, type(None), np.ndarray, np.dtype, ModuleType, CodeType,
    set, frozenset, range, slice, property,
})  # fmt: skip
_METHODS = (MethodType, BuiltinFunctionType, staticmethod, classmethod)

_Parts = Iterator[tuple[str, Any]]


def reachable(roots: Mapping[str, Any]) -> _Parts:
    """Each object once, with a path that is the same in whichever process it is looked for."""
    own = {_home(value if isinstance(value, FunctionType) else type(value)) for value in roots.values()}
    own = {"__main__"} | {home for home in own if not _is_library(home)}
    seen: set[int] = set()
    near, later = deque(roots.items()), deque[tuple[str, Any]]()
    while (near or later) and len(seen) < _MOST:
        path, value = near.popleft() if near else later.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield path, value
        parts = (part for part in islice(_parts(path, value, own), _MORE) if type(part[1]) not in _ATOMS)
        with contextlib.suppress(RuntimeError):  # a thread of the dataset has changed it meanwhile
            near.extend(islice(parts, _NEAR))
            later.extend(parts)


def _parts(path: str, value: Any, own: set[str]) -> _Parts:
    kind = type(value)
    if issubclass(kind, dict):
        for place, (key, part) in enumerate(dict.items(value)):
            yield f"{path}[{key if type(key) in (str, int) else place!r}]", part
    for sequence in (list, tuple, deque):
        if issubclass(kind, sequence):
            for place, part in enumerate(sequence.__iter__(value)):
                yield f"{path}[{place}]", part
    if kind is FunctionType:
        yield from _of_function(path, value, own)
    elif kind in _METHODS:
        yield from ((f"{path}.{name}", getattr(value, name, None)) for name in ("__func__", "__self__"))
    elif issubclass(kind, type):
        yield from _of_class(path, value, own)
    elif kind.__module__ != "builtins":
        yield from _of_object(path, value)


def _of_object(path: str, value: Any) -> _Parts:
    if issubclass(type(value), functools.partial):
        yield from ((f"{path}.{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    with contextlib.suppress(Exception):  # no such thing, or a class that makes it up
        for name, part in list(object.__getattribute__(value, "__dict__").items()):
            yield f"{path}.{name}", part
    bases = [base for base in type(value).__mro__ if base.__module__ != "builtins"]
    slots = ((name, slot) for base in bases for name, slot in list(vars(base).items()))
    for name, slot in slots:
        if type(slot) is MemberDescriptorType:
            with contextlib.suppress(AttributeError):  # it is empty
                yield f"{path}.{name}", slot.__get__(value)
    yield from ((f"{path}:{base.__name__}", base) for base in bases)


def _of_class(path: str, value: type, own: set[str]) -> _Parts:
    for name, part in list(vars(value).items()):
        if type(part) is not FunctionType or _home(part) in own or part.__closure__:
            yield f"{path}.{name}", part


def _of_function(path: str, value: FunctionType, own: set[str]) -> _Parts:
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # it is empty
            yield f"{path}.{name}", cell.cell_contents
    yield f"{path}.__defaults__", value.__defaults__
    yield f"{path}.__kwdefaults__", value.__kwdefaults__
    if _home(value) in own:
        known = value.__globals__
        yield from ((f"{_home(value)}.{name}", known[name]) for name in names_in(value.__code__) if name in known)


def names_in(code: CodeType) -> Iterator[str]:
    """The globals and attributes that code names, with those of the functions in it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):  # a comprehension, or a function within
            yield from names_in(part)


def _home(value: Any) -> str:
    """The module of a class or a function. In a child of multiprocessing the main module has another name."""
    home = str(getattr(value, "__module__", ""))
    return "__main__" if home == "__mp_main__" else home


def _is_library(home: str) -> bool:
    path = getattr(sys.modules.get(home), "__file__", None)
    return home == "builtins" or (path is not None and is_of_a_library(path))
