"""A dataset that needs a key, as those do that read from object stores."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from swift_loader import Secret


class Locked:
    """Its samples say which key a worker has; one of them is refused, in words that have the key in them."""

    def __init__(self, key: Secret, refused: int = -1) -> None:
        self.key, self.refused = key, refused

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, object]:
        if index == self.refused:
            raise PermissionError(f"{self.key} does not open sample {index}")
        process = Path("/proc/self")
        seen = process.joinpath("cmdline").read_bytes() + process.joinpath("environ").read_bytes()
        return {
            "digest": digest_of(self.key.reveal()),
            "is_seen": int(self.key.reveal().encode() in seen),
            "pid": os.getpid(),
        }


def digest_of(text: str) -> str:
    """What may be shown of a key."""
    return hashlib.sha256(text.encode()).hexdigest()
