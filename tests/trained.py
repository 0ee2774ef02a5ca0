"""All of `with_lightning.py`, imported when something of it is asked for.

Lightning costs seconds of a core, and with it each later test costs more: only the processes pay that run such a test.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # pytest asks all that stands in a test module for such names
        raise AttributeError(name)
    return getattr(importlib.import_module("tests.with_lightning"), name)
