"""All that is known of one epoch, as a report tells it and a prediction starts from it. Knows not who gathered it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swift_loader.telemetry.prediction import Measured
from swift_loader.telemetry.summary import Summary, WorkerShare
from swift_loader.telemetry.surroundings import Surroundings

_BRIEF_S = 0.5


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose epoch it is, and how it was set."""

    consumer: int
    consumer_count: int
    workers: int
    threads: int
    starves: str = "consumer"
    """What waits where data is late: "GPU", or "consumer" where there is none."""


@dataclass(frozen=True, slots=True)
class Account:
    """One epoch."""

    owner: Owner
    epoch: int
    is_whole: bool
    """It has come to its end, or was left; else it still goes on."""
    summary: Summary
    surroundings: Surroundings | None
    workers_nbytes: tuple[int, ...] = ()
    """Memory of their own, of the workers that were there when it was looked."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """What the pool counts, and a cache if there is one; by the names of `statistics()`."""
    steps: int = 0
    """How many batches the epoch has. Less were handed out where it was left early, or gone on with."""
    free_nbytes: int | None = None
    """Memory that further workers may take; None where it is not known."""
    servers: Mapping[int, str] = field(default_factory=dict)
    """Which of the workers are servers, and where."""
    dtype: str = ""
    """What most bytes of a batch are."""

    @property
    def is_brief(self) -> bool:
        """Too short for what the kernel counts in hundredths of a second, and for advice."""
        return self.summary.seconds < _BRIEF_S

    @property
    def most_workers(self) -> int | None:
        """How many memory has room for; None where that is not known."""
        if self.free_nbytes is None or not any(self.workers_nbytes):
            return None
        return self.owner.workers + self.free_nbytes // max(self.workers_nbytes)

    @property
    def slots(self) -> int:
        """How many there were."""
        holders = (name for name in self.counted if name.startswith("slots_") and name != "slots_lost")
        return int(sum(self.counted[name] for name in holders))

    @property
    def is_memory_short(self) -> bool:
        """Slots take all that they may, or would with one more of them."""
        taken = self.counted.get("slot_bytes", 0.0)
        return taken + taken / max(1, self.slots) > self.counted.get("slot_bytes_most", float("inf"))

    @property
    def of_servers(self) -> list[tuple[str, WorkerShare]]:
        """What each of the servers did: its address, and its share."""
        return [(self.servers[one.number], one) for one in self.summary.workers if one.number in self.servers]

    @property
    def busiest_network_share(self) -> float:
        """For so much of the time a batch of the server whose connection was busiest was on its way."""
        seconds = self.summary.seconds
        return max((one.transit_s for _, one in self.of_servers), default=0.0) / seconds if seconds > 0 else 0.0

    @property
    def measured(self) -> Measured:
        """What a prediction starts from."""
        summary, count = self.summary, max(1, self.summary.batches)
        cpu_s = sum(worker.cpu_s for worker in summary.workers)
        around = self.surroundings or Surroundings(summary.seconds, 0.0, None, 1.0)
        # Where batches are made in the consumer's own process, its CPU time has theirs in it.
        consumer_cpu_s = max(0.0, around.consumer_cpu_s - (0.0 if self.owner.workers else cpu_s))
        busy_s = summary.spreads["consumer works"].total_s + summary.land_s
        return Measured(
            workers=self.owner.workers,
            threads=self.owner.threads,
            batches_per_s=summary.batches_per_s,
            cores=around.cores,
            cores_of_others=around.cores_of_others(cpu_s if self.owner.workers else 0.0),
            fetch_s=summary.spreads["collect batch data"].total_s / count,
            work_s=summary.made_s / count,
            cpu_s=cpu_s / count,
            delay_s=summary.delay_s / count if summary.delay_s > 0 else None,
            idle_share=summary.idle_share,
            busy_s=busy_s / count,
            consumer_cpu_s=consumer_cpu_s / count,
            starved_share=summary.starved_share,
        )
