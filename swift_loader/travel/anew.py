"""What is made anew in a worker: locks, files, weak references, and the few kinds of objects that go by a name which
workers do not know.

A lock arrives open: whoever holds the other one is not there. A file is opened again, at the place where it was.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import os
import sys
import threading
import typing
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swift_loader.travel import arrival


@functools.lru_cache
def an_lru_cache() -> None:
    """Its type has no name."""


def _lock(_: Any) -> Any:
    return threading.Lock, ()


def _rlock(_: Any) -> Any:
    return threading.RLock, ()


def _condition(condition: Any) -> Any:
    return threading.Condition, (condition._lock,)


def _text_file(file: io.TextIOWrapper) -> Any:
    for name in ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__"):
        if file is getattr(sys, name, None):
            return getattr, (sys, name)
    mode = getattr(file, "mode", "w" if not file.closed and file.writable() else "r")
    return _file(file, mode, {"encoding": file.encoding, "errors": file.errors})


def _buffered_file(file: Any) -> Any:
    if type(file.raw) is not io.FileIO:
        raise TypeError(f"cannot open again what a {type(file).__name__} reads from")
    return _file(file, _mode_of(file.raw), {})


def _raw_file(file: io.FileIO) -> Any:
    return _file(file, _mode_of(file), {"buffering": 0})


def _mode_of(file: io.FileIO) -> str:
    return file.mode.replace("x", "w")


def _file(file: Any, mode: str, how: dict[str, Any]) -> Any:
    if file.closed:
        return arrival.closed, (mode, how)
    if not isinstance(file.name, str | os.PathLike):
        raise TypeError(f"cannot open the {type(file).__name__} again, which has no path")
    path = Path(file.name).absolute()
    if not path.is_file() or not os.path.samestat(os.fstat(file.fileno()), path.stat()):
        raise TypeError(f"cannot open {file.name} again: it is no regular file, or has been removed or replaced")
    if file.writable():
        file.flush()
    return arrival.opened, (str(path), mode.replace("x", "w"), file.tell(), how)


def _weak_reference(reference: Any) -> Any:
    meant = reference()
    return (arrival.dead_reference, ()) if meant is None else (weakref.ref, (meant,))


def _weak_dict(pairs: Any) -> Any:
    return type(pairs), (), None, None, iter(list(pairs.items()))


def _missing(_: Any) -> str:
    return "MISSING"


REDUCERS: dict[type, Callable[[Any], Any]] = {
    type(threading.Lock()): _lock,
    type(threading.RLock()): _rlock,
    threading.Condition: _condition,
    io.TextIOWrapper: _text_file,
    io.BufferedReader: _buffered_file,
    io.BufferedWriter: _buffered_file,
    io.BufferedRandom: _buffered_file,
    io.FileIO: _raw_file,
    weakref.ref: _weak_reference,
    weakref.WeakKeyDictionary: _weak_dict,
    weakref.WeakValueDictionary: _weak_dict,
    type(dataclasses.MISSING): _missing,
}


def _new_type(kind: Any) -> Any:
    return typing.NewType, (kind.__name__, kind.__supertype__), {"__module__": kind.__module__}


def _by_its_name(variable: Any) -> Any:
    return type(variable), (variable.__name__,)


#: Pickled by their names, which will not do where workers have no such module.
NAMED: dict[type, Callable[[Any], Any]] = {
    typing.NewType: _new_type,
    typing.ParamSpec: _by_its_name,
    typing.TypeVarTuple: _by_its_name,
}
