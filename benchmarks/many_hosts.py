"""Many hosts: what a job needs whose data is made on other machines, and what 512 consumers' plans cost.

Measures: the plans of 512 consumers over 1.28 thousand million samples, in this process: to make them all, and to ask
them for the indices of 16 batches of 256, at the begin, in the middle and near the end of an epoch.

Computes: for a job of GPUs, hosts that hold them, and machines that make batches, what goes over each wire, how many
cores are busy with what, and what must be held in memory. What goes in stands in the table first; each figure of one
batch was measured by another of these benchmarks, and can be given.

Leaves out: what all-reduce takes of the same wire, storage that is slower than its readers, switches.

Command: `python -m benchmarks.many_hosts [--gpus 64 --hosts 8 --machines 40 ...]`. No goal: it is arithmetic. The last
table is `results/many_hosts.txt`; `docs/many_hosts.md` tells what follows from it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from time import perf_counter

from swift_loader.plan.plan import EpochPlan

CONSUMERS, SAMPLES, BATCH = 512, 1_280_000_000, 256
GB = 1e9


@dataclass(frozen=True)
class Job:
    """What a job is, and what one batch costs."""

    gpus: int
    hosts: int
    machines: int
    cores: int
    rate: float
    batch: int
    sample_nbytes: float
    stored_nbytes: float
    decoded_per_core: float
    receive_s_per_gb: float
    trainer_ms: float
    making_s: float
    wire_gbit: float

    def rows(self) -> list[tuple[str, str]]:
        """What it needs."""
        gpu_rate = self.rate * self.sample_nbytes / GB
        host_rate = gpu_rate * self.gpus / self.hosts
        machine_rate = gpu_rate * self.gpus / self.machines
        tickets = self.rate / self.batch
        slots = tickets * self.making_s + 10
        slot_gb = self.batch * self.sample_nbytes / GB
        samples = self.rate * self.gpus
        read = samples * self.stored_nbytes / GB
        busy = samples / self.decoded_per_core
        receiving = host_rate * self.receive_s_per_gb
        per_host = self.gpus / self.hosts
        return [
            ("job", f"{samples:,.0f} samples/s, {gpu_rate * self.gpus:.1f} GB/s, {tickets * self.gpus:,.0f} batches/s"),
            ("one GPU", f"{gpu_rate:.2f} GB/s, {tickets:.1f} batches/s"),
            ("a host's wire", f"{host_rate * 8:.1f} Gb/s: {host_rate * 8 / self.wire_gbit:.0%} of {self.wire_gbit:g}"),
            ("a machine's wire", f"{machine_rate * 8:.1f} Gb/s: {machine_rate * 8 / self.wire_gbit:.0%}"),
            (
                "cores that make batches",
                f"{busy:,.0f} of {self.machines * self.cores:,}: {busy / self.machines / self.cores:.0%}",
            ),
            ("read from storage", f"{read:.1f} GB/s, {read / self.machines:.2f} by each machine"),
            ("cores that receive", f"{receiving:.1f} on each host"),
            (
                "cores of the trainers",
                f"{per_host * tickets * self.trainer_ms / 1000:.2f} on each host",
            ),
            (
                "slots",
                f"{slots:.0f} for each GPU: {slots * slot_gb:.2f} GB; a host {slots * slot_gb * per_host:.1f} GB",
            ),
        ]


def plans() -> list[tuple[str, str]]:
    """What the consumers' side of a very large job costs."""
    began = perf_counter()
    made = [
        EpochPlan(sample_count=SAMPLES, batch_size=BATCH, consumer_count=CONSUMERS, seed=1) for _ in range(CONSUMERS)
    ]
    rows = [("512 plans of 1.28 * 10^9 samples", f"{(perf_counter() - began) * 1e3:.1f} ms together")]
    for consumer in (0, CONSUMERS // 2, CONSUMERS - 1):
        steps = made[consumer].step_count(0, consumer)
        for first in (0, steps // 2, steps - 16):
            took = min(_timed(made[consumer], consumer, first) for _ in range(20))
            rows.append(
                (f"consumer {consumer}, step {first:,}", f"{took / 16 * 1e6:.1f} us a batch of {BATCH} indices")
            )
    return rows


def _timed(plan: EpochPlan, consumer: int, first: int) -> float:
    began = perf_counter()
    batches = plan.indices(3, consumer, first, 16)
    took = perf_counter() - began
    assert len(batches) == 16
    return took


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description="What a job needs whose data is made on other machines.")
    for name, default, told in (
        ("gpus", 64, "of the job"),
        ("hosts", 8, "which hold them"),
        ("machines", 40, "which make batches"),
        ("cores", 32, "of one machine"),
        ("rate", 3000, "samples a second that one GPU takes"),
        ("batch", 256, "samples in a batch"),
        ("sample-nbytes", 3 * 224 * 224, "bytes of a sample in a batch: uint8; four times that is float32"),
        ("stored-nbytes", 110_000, "bytes of a sample as it is stored"),
        ("decoded-per-core", 860, "samples a second that a core makes"),
        ("receive-s-per-gb", 0.71, "CPU seconds of a host for each GB received: with TLS; without 0.135"),
        ("trainer-ms", 0.65, "CPU milliseconds of a trainer for each batch"),
        ("making-s", 0.33, "seconds from an order to its batch"),
        ("wire-gbit", 25, "of a host's or a machine's network card"),
    ):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{told} ({default:,})")
    job = Job(**vars(parser.parse_args()))
    _table("what is given", [(name, f"{value:,}") for name, value in vars(job).items()])
    _table("what it needs", job.rows())
    _table("the consumers' plans", plans())


def _table(title: str, rows: list[tuple[str, str]]) -> None:
    print(title)
    for name, value in rows:
        print(f"  {name:<34} {value}")
    print()


if __name__ == "__main__":
    main()
