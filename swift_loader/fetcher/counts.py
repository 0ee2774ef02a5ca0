"""What the fetcher counts, for those who ask it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Counts:
    """Since the fetcher has begun."""

    requests: int = 0
    nbytes: int = 0
    """That came over the network, and were used."""
    retries: int = 0
    hedges: int = 0
    refetches: int = 0
    """Bytes that were damaged where they landed, and asked for again."""
    renewals: int = 0
    """Keys that had expired."""
    ranges_nbytes: int = 0
    """Of what came, what was fetched because somebody waited for it."""
    runs: int = 0
    ranges: int = 0
    """Stretches of the set that were fetched: by the plan, and because somebody waited for them."""
    hits_kept: int = 0
    """Of the plan's stretches, those that lay in the folder."""
    kept_nbytes: int = 0
    waits: int = 0
    """Batches that were not there when they were wanted."""
    wait_s: float = 0.0
    """How long those waited, in all."""
    evicted_in_use: int = 0
    """Stretches that were let go of though they were needed still: there is too little memory."""
    warning: str = ""

    def told(self) -> dict[str, Any]:
        """As words."""
        return asdict(self)
