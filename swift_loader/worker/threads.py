"""In a worker that was forked from the trainer: one thread for arithmetic, in libraries that were loaded before.

Where a worker has an interpreter of its own, the environment says so before anything is loaded (`host.cores`).
A forked worker has the trainer's libraries, which read their environment long ago: they are asked one by one. Without
it, four workers with two threads each fight for two cores, and GNU's OpenMP hangs in a child of a process that has used
its threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from swift_loader.host.cores import THREAD_CAPS

Setter = Callable[[int], object]
_LIBRARIES = re.compile(r"/[^/]*(?:blas|blis|omp|mkl_rt)[^/]*\.so[^/]*$")
_SETTERS = (
    "omp_set_num_threads",
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
    "MKL_Set_Num_Threads",
    "bli_thread_set_num_threads",
)


def one_thread_each(setters: Iterable[Setter]) -> None:
    """Sets all that is loaded to one thread, and the environment for what is not loaded yet."""
    os.environ.update(THREAD_CAPS)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    for setter in setters:
        setter(1)


def setters() -> list[Setter]:
    """What sets the number of threads in all that is loaded: looked for before the fork, since a copy that looks makes
    1 MB of pages its own.
    """
    found: list[Setter] = []
    for path in _loaded():
        with contextlib.suppress(OSError):  # replaced on disk since
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            found += [setter for name in _SETTERS if (setter := getattr(library, name, None)) is not None]
    return found


def _loaded() -> set[str]:
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    return {path for path in paths if _LIBRARIES.search(path)}
