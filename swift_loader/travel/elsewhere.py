"""Modules that no other process would find: loaded from a file by its path, or from a folder that is not looked in any
more, as it was ``''`` and the process has moved; or made without a file that Python can import.

Where there is a file a worker is told of it, and loads it once something asks for the module. What is of the others can
only go by value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Any

#: Where a module's file is, and where those of its parts are if it is a package.
Place = tuple[str, list[str] | None]
#: A process that multiprocessing has spawned has the second one.
MAINS = ("__main__", "__mp_main__")


def unfindable() -> tuple[dict[str, Place], list[ModuleType]]:
    """Modules of this process that have a file elsewhere, and those whose classes and functions must go by value."""
    folders = {os.path.abspath(entry) for entry in sys.path}.union(sys.path)  # noqa: PTH100 - a path would be slow
    places, without = {}, []
    loaded: list[tuple[str, Any]] = list(sys.modules.items())
    for name, module in loaded:
        # Without asking the module: some are loaded once they are asked for anything.
        known = object.__getattribute__(module, "__dict__") if isinstance(module, ModuleType) else {}
        if known.get("__name__") != name or name == MAINS[0]:
            continue
        spec = known.get("__spec__")
        if name == MAINS[1]:
            without.append(module)
        elif not isinstance(spec, ModuleSpec):
            if "." not in name and name not in sys.builtin_module_names and not _is_found(name, None):
                without.append(module)
        elif spec.has_location and isinstance(spec.origin, str) and not _is_in_place(spec, folders):
            if spec.origin.endswith(tuple(all_suffixes())):
                parts = spec.submodule_search_locations
                places[name] = os.path.abspath(spec.origin), None if parts is None else list(parts)  # noqa: PTH100
            else:
                without.append(module)
    return places, without


def _is_in_place(spec: ModuleSpec, folders: set[str]) -> bool:
    assert spec.origin is not None
    folder = spec.origin.rpartition("/")[0]
    if spec.submodule_search_locations is not None:
        folder = folder.rpartition("/")[0]
    known = folders if "." not in spec.name else _folders_of_parts(spec.name)
    return folder in known or _is_found(spec.name, spec.origin)


def _folders_of_parts(name: str) -> Sequence[str]:
    try:
        return list(getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", ()))
    except TypeError:  # an attribute of its own by that name
        return []


def _is_found(name: str, file: str | None) -> bool:
    """Whether a search leads to that file, or to any; folders have more than one name."""
    try:
        spec = PathFinder.find_spec(name, _folders_of_parts(name) if "." in name else None)
        if spec is None or file is None or spec.origin is None:
            return spec is not None and file is None
        return os.path.samefile(spec.origin, file)  # noqa: PTH121
    except (OSError, ImportError):
        return False


def know(places: dict[str, Place]) -> None:
    """From now on such modules are found in this process."""
    if places:
        sys.meta_path.insert(0, _Finder(places))


class _Finder:
    """Knows a few modules by the paths of their files."""

    def __init__(self, places: dict[str, Place]) -> None:
        self._places = places

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system's own
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        place = self._places.get(name)
        return None if place is None else spec_from_file_location(name, place[0], submodule_search_locations=place[1])
