"""Spacing: how far apart the uses of a sample are that rotation repeats, for several sizes.

Measures: the places between one use of a sample and its next, of 100,000 samples of one consumer, shuffled, over a
whole epoch of the plan; and of each run of 64 places how large a part is new, which is what workers have to make while
those are used.

Leaves out: what workers and queues add to a distance, at most the batches that are ahead.

Command: `python -m benchmarks.spacing` (a second; nothing is random). The last table is `results/spacing.txt`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from swift_loader.plan.plan import EpochPlan

SAMPLES = 100_000
SIZES = (1, 2, 3, 16, 64, 256, 1024, 4096, 16384)
ROTATIONS = (2, 3, 5, 10)
BATCH = 64
CHUNK = 1024


def order_of(plan: EpochPlan) -> np.ndarray:
    """All indices of an epoch, one after the other."""
    steps = range(0, plan.step_count(0, 0), CHUNK)
    return np.concatenate([np.concatenate(plan.indices(0, 0, first, CHUNK)) for first in steps])


def figures(order: np.ndarray, rotation: int) -> list[float]:
    """Distances: least, median, 95th percentile. New ones of a run of places: 5th and 95th percentile, in percent."""
    places = np.argsort(order, kind="stable").reshape(-1, rotation)
    distances = np.diff(places, axis=1)
    is_new = np.zeros(order.size)
    is_new[places[:, 0]] = 100
    shares = is_new[: order.size - order.size % BATCH].reshape(-1, BATCH).mean(axis=1)
    return [distances.min(), *np.percentile(distances, (50, 95)), *np.percentile(shares, (5, 95))]


def table() -> str:
    """The whole result."""
    lines = [
        f"Spacing of rotation: {SAMPLES:,} samples, one consumer, shuffled",
        "",
        "rotation      size   least apart    median       p95    new per 64: p5       p95",
    ]
    for rotation in ROTATIONS:
        lines.append("-" * 80)
        for size in SIZES:
            plan = EpochPlan(sample_count=SAMPLES, batch_size=BATCH, rotation=rotation, block=size)
            least, median, high, few, many = figures(order_of(plan), rotation)
            lines.append(
                f"{rotation:>8}{size:>10,}{least:>14,.0f}{median:>10,.0f}{high:>10,.0f}{few:>17.0f} %{many:>8.0f} %"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    made = table()
    print(made)
    (Path(__file__).parent / "results" / "spacing.txt").write_text(made, encoding="utf-8")
