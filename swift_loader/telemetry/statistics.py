"""A summary as flat figures, for loggers that draw curves. Pure; the names are told in docs/benchmark.md."""

from __future__ import annotations

from swift_loader.telemetry.summary import PERCENTILES, Summary

#: What is told by its percentiles, and under which name.
_SPREAD = {
    "fetch": "collect batch data",
    "collate": "collate batch data",
    "wait": "consumer waits for data",
    "busy": "consumer works",
}


def figures(summary: Summary) -> dict[str, float]:
    """Shares, rates, and percentiles."""
    shares = [worker.busy_share for worker in summary.workers]
    seconds = max(summary.seconds, 1e-9)
    return {
        "starved_share": summary.starved_share,
        "land_share": summary.land_s / seconds,
        "worker_busy_share": sum(shares) / len(shares) if shares else 0.0,
        "worker_idle_share": summary.idle_share,
        "batches_per_s": summary.batches_per_s,
        "samples_per_s": summary.samples_per_s,
        "bytes_per_s": summary.nbytes / seconds if summary.seconds > 0 else 0.0,
        **{
            f"{name}_p{percentile}_s": value
            for name, task in _SPREAD.items()
            for percentile, value in zip(PERCENTILES, summary.spreads[task].percentiles_s, strict=True)
        },
    }
