"""Stragglers: a few samples take a hundred times as long, and batches are delivered in order all the same.

Measures: 5 % of the samples sleep 100 ms, the others 1 ms; which ones is a fixed function of the index. Shuffled,
batches of 16, 4 and 8 workers, in order. The clock runs from the construction of the dataset and the loader on, over
whole epochs: at least three, and at least four seconds. The ceiling is what one plain loop would reach (from the times
of some slow and some quick samples, weighted by how many there are), times the workers.

Leaves out: out-of-order delivery, which both sides offer; stragglers that are so for good, such as a hung mount.

Command: `python -m benchmarks.stragglers`. The last table is `results/stragglers.txt`.

Caveat: a batch holds 0.8 slow samples in the mean, so batches take from 16 ms to 400 ms. The shuffles differ between
the sides, not the samples.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import mean

from benchmarks import duel
from benchmarks.laps import run_epochs
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.waiting import weigh
from benchmarks.workloads import Stragglers

BATCH_SIZE = 16
EPOCH_BATCHES = 320
WORKERS = (4, 8)
SLOW_SAMPLES = 6
QUICK_SAMPLES = 200


def work(settings: Settings, workers: int) -> Work:
    """The workload."""
    keywords = {"count": settings.size(EPOCH_BATCHES) * BATCH_SIZE}
    return Work(Stragglers, keywords, BATCH_SIZE, settings.seed, workers)


def case_swift(settings: Settings, workers: int) -> Result:
    """Ours."""
    return run_epochs(build_swift(work(settings, workers)), weigh, settings).result()


def case_torch(settings: Settings, *, workers: int, persistent: bool = False) -> Result:
    """Torch's."""
    build = build_torch(work(settings, workers), persistent=persistent)
    return run_epochs(build, weigh, settings).result()


def case_serial(settings: Settings, workers: int) -> Result:
    """One plain loop, times the workers."""
    dataset = Stragglers(**work(settings, workers).dataset_kwargs)
    slow = [index for index in range(len(dataset)) if dataset.is_slow(index)]
    quick = [index for index in range(len(dataset)) if not dataset.is_slow(index)]
    slow_s = mean(seconds(dataset, index) for index in slow[:SLOW_SAMPLES])
    quick_s = mean(seconds(dataset, index) for index in quick[: settings.size(QUICK_SAMPLES)])
    serial = len(dataset) / (slow_s * len(slow) + quick_s * len(quick))
    return {"samples_per_s": serial * workers, "serial_samples_per_s": serial, "slow_share": len(slow) / len(dataset)}


def seconds(dataset: Stragglers, index: int) -> float:
    """How long one sample takes."""
    began = time.perf_counter()
    dataset[index]
    return time.perf_counter() - began


def cases() -> list[Case]:
    """Every side with every number of workers."""
    found: list[Case] = []
    for count in WORKERS:
        group = f"{count} workers"
        torch = partial(case_torch, workers=count)
        persistent = partial(torch, persistent=True)
        serial = partial(case_serial, workers=count)
        found += [
            Case(f"swift_{count}", f"ours, {count}", Side.OURS, partial(case_swift, workers=count), group=group),
            Case(f"torch_fork_{count}", f"torch, fork, {count}", Side.TORCH, torch, group=group),
            Case(
                f"torch_persistent_{count}",
                f"torch, persistent, {count}",
                Side.TORCH,
                persistent,
                rounds=1,
                group=group,
            ),
            Case(f"serial_{count}", f"one loop, x {count}", Side.CEILING, serial, group=group),
        ]
    return found


def goals() -> list[Goal]:
    """What each number of workers should reach."""
    found: list[Goal] = []
    for count in WORKERS:
        found += [
            Goal(f"ours / {count} x serial", f"swift_{count}", f"serial_{count}", at_least=0.93),
            Goal(f"torch fork / {count} x serial", f"torch_fork_{count}", f"serial_{count}"),
            Goal(f"ours / torch fork, {count}", f"swift_{count}", f"torch_fork_{count}"),
        ]
    return found


QUESTION = Question(
    name="stragglers",
    title="Stragglers: 5 % of samples take 100 ms, others 1 ms; batch 16, in order",
    metric="samples_per_s",
    unit="samples/s",
    cases=tuple(cases()),
    goals=tuple(goals()),
    columns=(Column("first_three_samples_per_s", "3 epochs"),),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
