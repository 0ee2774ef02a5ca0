"""Datasets that take their time, and see where they are. Nothing here imports torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.datasets import Numbers, note, wait_for


class BuiltLate(Numbers):
    """Is built when the file ``open`` is in ``folder``."""

    def __init__(self, folder: str, count: int = 32) -> None:
        super().__init__(count)
        note(folder, "init")
        wait_for(Path(folder) / "open")


class Where(Numbers):
    """Sample i says in which folder its worker is, and whether a module of that folder can be imported."""

    def __getitem__(self, index: int) -> Any:
        try:
            return {"folder": str(Path.cwd()), "path": [entry for entry in sys.path if entry.endswith("modules")]}
        except FileNotFoundError:
            return {"folder": "", "path": []}
