"""Whose line a warning is about: that of the user, however deep in the package it is found."""

from __future__ import annotations

import sys

_PACKAGE = __name__.partition(".")[0]


def users_line() -> int:
    """What to give `warnings.warn` as ``stacklevel``, in the function that calls this, to name the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
