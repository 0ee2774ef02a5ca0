"""What a worker has loaded to build its dataset: the next one will load it too, so it is better loaded once, by the
process that both are forked from.

Libraries only. What the user's own modules do when they are imported (open a file, connect, note the time), they are to
do in each worker, as they always did.
"""

from __future__ import annotations

import os
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np

#: Of Python's own modules, and of installed ones.
_HOMES = (str(Path(os.__file__).parent) + os.sep, str(Path(np.__file__).parent.parent) + os.sep)


def libraries_since(count: int) -> list[str]:
    """The names of modules that were loaded since there were only so many.

    Only the new ones are looked at: in a forked process, looking at an object copies the page where it lies, and
    those of two thousand modules are 4 MB. Where modules were thrown out meanwhile, the first new ones are overlooked.
    """
    found = list(islice(reversed(sys.modules), max(0, len(sys.modules) - count)))
    return [name for name in reversed(found) if _comes_from_a_library(sys.modules.get(name))]


def is_of_a_library(path: str) -> bool:
    """Whether that file is."""
    return path.startswith(_HOMES)


def _comes_from_a_library(module: ModuleType | None) -> bool:
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return isinstance(origin, str) and is_of_a_library(origin)
