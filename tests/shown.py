"""Loaders as they are shown, for tests of who shows and of who looks."""

from __future__ import annotations

from typing import Any

from swift_loader.telemetry.board import Shown, WorkerShown

S = 1_000_000_000


def worker(number: int, **given: Any) -> WorkerShown:
    usual = {
        "pid": 1000 + number, "state": "serves", "stage": "fetches", "index": 17, "ordered": 2, "unmerged": 1,
        "still_s": 0.0, "deaths": 0, "last_death": "", "server": "", "transit_s": 0.0,
    }  # fmt: skip
    return WorkerShown(number=number, **{**usual, **given})


def shown(**given: Any) -> Shown:
    """A loader in full swing, at second 100 of the clock."""
    usual = {
        "pid": 42, "consumer": 0, "consumer_count": 1, "dataset": "Images", "batch_size": 32, "is_measured": True,
        "began_ns": 10 * S, "posted_ns": 100 * S, "epoch": 3, "step": 117, "step_count": 400, "batches": 1317,
        "samples": 42144, "nbytes": 10**9, "wait_s": 3.0, "recent_s": 10.0, "recent_batches": 125,
        "recent_samples": 4000, "recent_nbytes": 20_000_000, "recent_wait_s": 2.5, "is_waiting": False,
        "since_ns": 100 * S, "ready": 3, "ready_most": 10, "slots": {"slots_free": 2, "slot_bytes": 3_000_000},
        "control_fd": 5, "workers": [worker(0)], "last": [],
    }  # fmt: skip
    return Shown(**{**usual, **given})
