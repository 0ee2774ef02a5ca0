"""Whether a worker that goes on and on takes more and more memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from swift_loader.telemetry import words
from swift_loader.testing.lab import Lab
from swift_loader.testing.probe import Seen
from swift_loader.testing.report import Finding
from swift_loader.testing.walk import Blocked

NAME = "memory"
_LEAST_SAMPLES = 20
#: Less than this is how allocators breathe.
_NOISE_NBYTES = 2_000_000
_LEAK_NBYTES = 500_000
"""Per 1,000 samples."""


def check(lab: Lab) -> Iterator[Finding]:
    """Follows a worker's own memory over many samples, of which the first half does not count: caches fill."""
    seen = lab.closely().of(2)
    if len(seen) < _LEAST_SAMPLES:
        raise Blocked(f"only {len(seen)} samples came, and {_LEAST_SAMPLES} are needed; see samples, or raise seconds=")
    half = seen[len(seen) // 2 :]
    growth, slope = _growth(half)
    per_thousand = 1000 * slope
    figures = {"per_thousand_samples_nbytes": per_thousand, "worker_nbytes": seen[-1].own_nbytes}
    text = f"a worker has {words.nbytes(seen[-1].own_nbytes)} after {len(seen):,} samples"
    if growth < _NOISE_NBYTES or per_thousand < _LEAK_NBYTES:
        # Less than this would not have been seen over so few samples.
        least = 1000 * _NOISE_NBYTES / (len(half) - len(half) // 3)
        known = (
            "takes no more" if least <= _LEAK_NBYTES else f"takes less than {words.nbytes(least)} more for each 1,000"
        )
        yield Finding(NAME, "ok", f"{text}, and {known}", figures=figures)
        return
    epoch = slope * lab.length
    yield Finding(
        NAME, "problem",
        f"{text}, and takes {words.nbytes(per_thousand)} more for each 1,000: {words.nbytes(epoch)} for every pass "
        "over the set, in all workers together",
        "look for a list or a dict that grows, or a cache without a bound; tracemalloc in __getitem__ names the line",
        figures=figures,
    )  # fmt: skip


def _growth(seen: list[Seen]) -> tuple[float, float]:
    """How much more there is at the end, and the slope in bytes per sample; a single step is no slope."""
    third = max(1, len(seen) // 3)
    at = [
        statistics.median(one.own_nbytes for one in part) for part in (seen[:third], seen[third:-third], seen[-third:])
    ]
    early, late = at[1] - at[0], at[2] - at[1]
    slope = min(early, late) / third
    return max(0.0, at[2] - at[0]), max(0.0, slope)
