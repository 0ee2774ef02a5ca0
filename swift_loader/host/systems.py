"""What not every system has: asked for by name, and done without where it is not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import reduce
from operator import or_


def flags(*names: str) -> int:
    """Those flags of `os` that this system knows, together."""
    return reduce(or_, (getattr(os, name, 0) for name in names), 0)


def in_forked_children(action: Callable[[], object]) -> None:
    """Has ``action`` called in each child that this process forks, where processes can be forked."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)
