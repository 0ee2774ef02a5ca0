"""A summary as flat figures, for loggers that draw curves. Pure; the names are told in docs/benchmark.md."""

from __future__ import annotations

from collections.abc import Collection

from swift_loader.telemetry.summary import PERCENTILES, Summary

#: What is told by its percentiles, and under which name.
_SPREAD = {
    "fetch": "collect batch data",
    "collate": "collate batch data",
    "wait": "consumer waits for data",
    "busy": "consumer works",
}


def figures(summary: Summary, servers: Collection[int] = ()) -> dict[str, float]:
    """Shares, rates, and percentiles; and of those workers that are servers, what each has sent."""
    shares = [worker.busy_share for worker in summary.workers]
    seconds = max(summary.seconds, 1e-9)
    spread = {**_SPREAD, "transit": "come over the network"} if servers else _SPREAD
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
            for name, task in spread.items()
            for percentile, value in zip(PERCENTILES, summary.spreads[task].percentiles_s, strict=True)
        },
        **{
            f"server_{one.number}_{name}": value
            for one in summary.workers
            if one.number in servers
            for name, value in (("batches", float(one.batches)), ("bytes_per_s", one.nbytes / seconds))
        },
    }
