"""What the script has set for its process, and expects to hold wherever its dataset runs: carried to the workers.

Workers run neither the script nor its imports, so what it has set at its top they would not know. It is gathered when
the loader is started, from what is loaded then; in a worker each setting is made as soon as its module is loaded, at
once or when the dataset imports it. Nothing is imported for it on either side.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from swift_loader.travel import script_logging
from swift_loader.travel.once_loaded import once_loaded


@dataclass(frozen=True, slots=True)
class ScriptSettings:
    """What one process had set, in plain values: they can be read before anything of the script's is there."""

    values: dict[str, Any]
    """By the names of `_CARRIED`."""
    secret: bytes | None = field(default=None, repr=False)
    """By which processes of multiprocessing know each other: a managed object lets in nobody else."""

    def apply(self) -> None:
        """Has it hold in this process."""
        for name, value in self.values.items():
            once_loaded(_CARRIED[name].module, partial(_write, _CARRIED[name].write, value))
        if self.secret is not None:
            once_loaded("multiprocessing.process", partial(_write, _know_each_other, self.secret))


def gathered() -> ScriptSettings:
    """What is set in this process, as the calling thread sees it."""
    values: dict[str, Any] = {}
    for name, one in _CARRIED.items():
        module = sys.modules.get(one.module)
        if module is not None:
            with contextlib.suppress(Exception):  # another thread is about to load it
                values[name] = one.read(module)
    processes = sys.modules.get("multiprocessing.process")
    secret = None if processes is None else bytes(processes.current_process().authkey)
    return ScriptSettings(values, secret)


def _write(write: Callable[[Any, Any], Any], value: Any, module: Any) -> None:
    with contextlib.suppress(Exception):  # a locale that is not installed where the worker runs
        write(module, value)


def _know_each_other(module: Any, secret: bytes) -> None:
    module.current_process().authkey = secret


def _filters(warnings: Any) -> list[tuple[Any, ...]]:
    """The strongest first. Of a class its name is told: it may be one that only the script has."""
    return [
        (
            action, getattr(message, "pattern", message) or "", (category.__module__, category.__name__),
            getattr(module, "pattern", module) or "", line,
        )
        for action, message, category, module, line in warnings.filters
    ]  # fmt: skip


def _filter(warnings: Any, filters: list[tuple[Any, ...]]) -> None:
    """One whose class is not there takes its place when the module of that is loaded."""
    warnings.resetwarnings()
    for action, message, (home, name), module, line in reversed(filters):

        def add(loaded: Any, given: tuple[Any, ...] = (action, message, name, module, line)) -> None:
            action, message, name, module, line = given
            with contextlib.suppress(Exception):  # a class that is not there, such as one of the script
                warnings.filterwarnings(action, message, getattr(loaded, name), module, line)

        once_loaded(home, add)


class _Carried(NamedTuple):
    module: str
    """Where it is set: without this it is not."""
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], Any]


def _attribute(module: str, name: str) -> _Carried:
    return _Carried(module, lambda it: getattr(it, name), lambda it, value: setattr(it, name, value))


_CARRIED = {
    "recursion limit": _Carried(
        "sys", lambda it: it.getrecursionlimit(), lambda it, limit: it.setrecursionlimit(limit)
    ),
    "arguments": _Carried("sys", lambda it: list(it.argv), lambda it, words: setattr(it, "argv", words)),
    "warnings": _Carried("warnings", _filters, _filter),
    "logging": _Carried("logging", script_logging.read, script_logging.write),
    "locale": _Carried("locale", lambda it: it.setlocale(it.LC_ALL), lambda it, name: it.setlocale(it.LC_ALL, name)),
    "numpy's errors": _Carried("numpy", lambda it: it.geterr(), lambda it, kinds: it.seterr(**kinds)),
    "csv's fields": _Carried("csv", lambda it: it.field_size_limit(), lambda it, limit: it.field_size_limit(limit)),
    "sockets": _Carried("socket", lambda it: it.getdefaulttimeout(), lambda it, limit: it.setdefaulttimeout(limit)),
    "torch's dtype": _Carried(
        "torch",
        lambda it: str(it.get_default_dtype()).removeprefix("torch."),
        lambda it, name: it.set_default_dtype(getattr(it, name)),
    ),
    "cut pictures": _attribute("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"),
    "large pictures": _attribute("PIL.Image", "MAX_IMAGE_PIXELS"),
}
