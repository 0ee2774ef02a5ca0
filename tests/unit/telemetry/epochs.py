"""Epochs that were never run: records, and accounts of them."""

from __future__ import annotations

from typing import Any

from swift_loader.telemetry import Account, BatchRecord, Measured, Owner
from swift_loader.telemetry.summary import Tally
from swift_loader.telemetry.surroundings import Surroundings

MS = 1_000_000


def a_record(step: int = 0, **changes: int) -> BatchRecord:
    record = BatchRecord(
        epoch=0,
        step=step,
        worker=step % 2,
        rows=32,
        nbytes=1000,
        fetch_ns=4 * MS,
        collate_ns=1 * MS,
        encode_ns=0,
        order_wait_ns=2 * MS,
        merge_ns=3 * MS,
        land_ns=1 * MS,
        wait_ns=5 * MS,
        busy_ns=15 * MS,
        slowest_ns=2 * MS,
        slowest_index=7,
        slot_wait_ns=MS // 2,
        decode_ns=MS // 4,
        transfer_ns=MS // 2,
        cpu_ns=5 * MS,
        delay_ns=1000,
        transit_ns=0,
    )
    return record._replace(**changes)


def an_account(
    records: list[BatchRecord],
    workers: int = 2,
    threads: int = 1,
    cores: float = 8.0,
    others_s: float = 0.0,
    **changes: Any,
) -> Account:
    """Of one consumer; ``others_s`` is CPU time of other processes."""
    tally = Tally()
    tally.add(records)
    summary = tally.summary()
    cpu_s = sum(worker.cpu_s for worker in summary.workers)
    around = Surroundings(summary.seconds, 0.0 if workers else cpu_s, cpu_s + others_s, cores)
    owner = Owner(0, 1, workers, threads, changes.pop("starves", "consumer"))
    return Account(owner, 3, changes.pop("is_whole", True), summary, around, **changes)


def measured(**changes: Any) -> Measured:
    """One worker on eight cores, whose batches take 100 ms of a core, and a consumer that takes 20 ms for each."""
    given: dict[str, Any] = {
        "workers": 1,
        "threads": 1,
        "batches_per_s": 10.0,
        "cores": 8.0,
        "cores_of_others": 0.0,
        "fetch_s": 0.09,
        "work_s": 0.1,
        "cpu_s": 0.1,
        "delay_s": 0.0,
        "idle_share": 0.0,
        "busy_s": 0.02,
        "consumer_cpu_s": 0.0,
        "starved_share": 0.8,
    }
    return Measured(**{**given, **changes})
