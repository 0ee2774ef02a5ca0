"""What a worker has loaded to build its dataset: the next one will load it too, so it is better loaded once, by the
process that both are forked from.

Libraries only. What the user's own modules do when they are imported (open a file, connect, note the time), they are to
do in each worker, as they always did.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

#: Of Python's own modules, and of installed ones.
_HOMES = (str(Path(os.__file__).parent) + os.sep, str(Path(np.__file__).parent.parent) + os.sep)


def libraries_since(known: frozenset[str]) -> list[str]:
    """The names of modules that were loaded since only those were."""
    return [name for name, module in list(sys.modules.items()) if name not in known and _comes_from_a_library(module)]


def is_of_a_library(path: str) -> bool:
    """Whether that file is."""
    return path.startswith(_HOMES)


def _comes_from_a_library(module: ModuleType) -> bool:
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return isinstance(origin, str) and is_of_a_library(origin)
