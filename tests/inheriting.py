"""A dataset that tells what its worker has from the trainer. Nothing here imports torch."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


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
