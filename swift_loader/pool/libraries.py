"""What a worker has loaded to build its dataset: the next one will load it too, so it is better loaded once, by the
process that both are forked from.

Libraries only. What the user's own modules do when they are imported (open a file, connect, note the time), they are to
do in each worker, as they always did.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import ModuleType

_HOMES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def libraries_since(known: frozenset[str]) -> list[str]:
    """The names of modules that were loaded since only those were."""
    return [name for name, module in list(sys.modules.items()) if name not in known and _is_of_a_library(module)]


def _is_of_a_library(module: ModuleType) -> bool:
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return isinstance(origin, str) and origin.startswith(_HOMES)
