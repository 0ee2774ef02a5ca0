"""What a long run on demand leaves in benchmarks/results: commit, seed, duration and counts."""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import machine

RESULTS = Path(machine.ROOT) / "benchmarks" / "results"


class Soak:
    """One long run: tells how far it is, and keeps what it came to.

    Args:
        name: The result is ``soak_{name}.json``.
        title: What was done, in a line.
        seed: What was drawn was drawn from it.
    """

    def __init__(self, name: str, title: str, seed: int) -> None:
        self.name, self.title, self.seed = name, title, seed
        self._begun = self._told = time.monotonic()
        # Looking at threads that run may crash the process that does it: good enough for a test that hangs.
        faulthandler.cancel_dump_traceback_later()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun

    def progress(self, text: str) -> None:
        """A line every ten seconds, past pytest's capture."""
        if time.monotonic() - self._told >= 10:
            self._told = time.monotonic()
            print(f"{self.name}: {text}, {self.seconds:.0f} s", file=sys.__stderr__, flush=True)

    def keep(self, **counts: Any) -> None:
        """Writes the result."""
        told = {
            "name": self.name,
            "title": self.title,
            "command": f"pytest -n 0 -m soak tests/fault -k {self.name}",
            "commit": machine.commit(),
            "machine": machine.facts(),
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "counts": counts,
        }
        (RESULTS / f"soak_{self.name}.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
