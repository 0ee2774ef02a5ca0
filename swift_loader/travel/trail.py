"""Where in a dataset the thing lies that cannot be sent: ``dataset.parts[0].socket``, for the error."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from swift_loader.travel.elsewhere import MAINS

#: So many objects are looked at.
_MOST = 200_000
_ATOMS = (str, bytes, int, float, complex, type(None))
#: Where a step begins with a name, it belongs to what the function before it uses.
_USES = "\0"
#: What is called by its own name on the way; all else of functions in disguise is not.
_STEPS = {"__self__": ".__self__", "args": ".args", "keywords": ".keywords"}


def told(root: Any, culprit: Any, error: Exception) -> str:
    """In one sentence. ``culprit``: what was being pickled when ``error`` came."""
    reason = f"{type(error).__name__}: {error}"
    way = _way(root, culprit)
    if way is None:  # it was made only to be pickled
        return reason
    return f"{_in_words(way)} is a {type(culprit).__name__}, and cannot be pickled ({reason})"


def _in_words(way: list[tuple[str, Any]]) -> str:
    """The way from the innermost function on, and which function that is."""
    path, function = "", ""
    for step, holder in way:
        if step.startswith(_USES):
            given = _without_root(path)
            function = f", which {_name_of(holder)}{f' ({given})' if given else ''} uses,"
            path = step.removeprefix(_USES)
        else:
            path += step
    return _without_root(path) + function


def _without_root(path: str) -> str:
    return path.removeprefix(".").removeprefix("config.")


def _name_of(function: Any) -> str:
    code = function.__code__
    return f"{function.__qualname__} of {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def _way(root: Any, culprit: Any) -> list[tuple[str, Any]] | None:
    """The shortest one: each step, and what it is a step from."""
    if root is culprit:
        return None
    before: dict[int, tuple[int, str, Any]] = {id(root): (0, "", None)}
    waiting = deque([root])
    kept = []  # what is made while it is looked for must not give its number to another
    while waiting and len(before) < _MOST:
        holder = waiting.popleft()
        kept.append(holder)
        for step, part in _parts(holder):
            if isinstance(part, _ATOMS) or id(part) in before:
                continue
            before[id(part)] = (id(holder), step, holder)
            if part is culprit:
                return _back(before, id(part))
            waiting.append(part)
    return None


def _back(before: dict[int, tuple[int, str, Any]], place: int) -> list[tuple[str, Any]]:
    way: list[tuple[str, Any]] = []
    while True:
        place, step, holder = before[place]
        if holder is None:
            return way[::-1]
        way.append((step, holder))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from (("", part) for part in value)
    elif isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, MethodType | partial | property | classmethod | staticmethod):
        names = ("__self__", "__func__", "func", "args", "keywords", "fget", "fset", "fdel")
        yield from ((_STEPS.get(name, ""), getattr(value, name, None)) for name in names)
    elif isinstance(value, type):
        if value.__module__ in MAINS or "<locals>" in value.__qualname__:
            yield from ((f".{name}", part) for name, part in list(vars(value).items()))
            yield from (("", base) for base in value.__bases__)
    else:
        yield from _parts_of_object(value)


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    used = inspect.getclosurevars(function)
    for name, part in {**used.globals, **used.nonlocals}.items():
        yield f"{_USES}{name}", part
    yield f"{_USES}__defaults__", function.__defaults__
    yield f"{_USES}__kwdefaults__", function.__kwdefaults__


def _parts_of_object(value: Any) -> Iterator[tuple[str, Any]]:
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from ((f".{name}", part) for name, part in list(attributes.items()))
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()) if "__slots__" in vars(kind) else ():
            part = getattr(value, name, None)
            if part is not None:
                yield f".{name}", part
    yield "", type(value)
