"""Datasets that tell what their workers have from the trainer. Nothing here imports torch."""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any


class Told:
    """One sample."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> str:
        mask = os.umask(0)
        os.umask(mask)
        return " ".join(
            map(
                str,
                (
                    os.environ.get("ADDED"),
                    os.environ.get("TAKEN"),
                    oct(mask),
                    sorted(os.sched_getaffinity(0)),
                    Path.cwd().name,
                    any(entry.endswith("added-later") for entry in sys.path),
                    resource.getrlimit(resource.RLIMIT_CPU)[0],
                ),
            )
        )


class LoadsLate:
    """Each sample tells its process, whether that was born with the library, and what was set for it alone."""

    def __init__(self, library: str) -> None:
        self.was_there = library in sys.modules
        importlib.import_module(library)

    def __len__(self) -> int:
        return 90

    def __getitem__(self, index: int) -> tuple[str, bool, str]:
        time.sleep(0.01)
        return f"{os.getpid()}", self.was_there, os.environ.get("SET_FOR_ONE", "")


def sets_its_own(info: Any) -> None:
    """A `worker_init`."""
    os.environ["SET_FOR_ONE"] = str(info.worker)
