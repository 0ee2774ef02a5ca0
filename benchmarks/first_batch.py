"""First batch: seconds from the first line that constructs dataset and loader to the first batch in hand.

Measures: 128 floats and a label, batch 32, 2 to 16 workers, in a training script that imports torch at its top (this
file does). Ours twice: a dataset that does not use torch, and a subclass of torch's Dataset. Beside it torch's
DataLoader with spawn (safe once CUDA is in use, as ours is) and with fork (not safe then): that is the ceiling of what
starting processes can cost.

Leaves out: `import torch` in the script itself, which all sides pay before; datasets that are slow to construct.

Command: `python -m benchmarks.first_batch`. The last table is `results/first_batch.txt`.

Caveat: torch waits for its first batch only, so later workers of it may still be starting. Torch with more than 2
workers runs in the first round only, because its spawn takes so long: its ratios are of that round.
"""

from __future__ import annotations

from functools import partial

import torch

from benchmarks import duel
from benchmarks.laps import run_epochs
from benchmarks.overhead import weigh
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.sides import Work, build_swift, build_torch
from benchmarks.torch_workloads import TorchFloats
from benchmarks.workloads import Floats

BATCH_SIZE = 32
COUNT = 64 * BATCH_SIZE
WORKERS = (2, 4, 8, 16)
#: One epoch is enough here: only its first batch counts.
ONE_EPOCH = Settings(seconds=0.0, epochs=1)


def work(settings: Settings, workers: int, *, subclass: bool) -> Work:
    """The workload."""
    return Work(TorchFloats if subclass else Floats, {"count": COUNT}, BATCH_SIZE, settings.seed, workers)


def case_swift(settings: Settings, *, workers: int, subclass: bool = False) -> Result:
    """Ours."""
    build = build_swift(work(settings, workers, subclass=subclass))
    return {**run_epochs(build, weigh, ONE_EPOCH).result(), "torch": torch.__version__}


def case_torch(settings: Settings, workers: int, start_method: str) -> Result:
    """Torch's."""
    build = build_torch(work(settings, workers, subclass=True), start_method=start_method)
    return run_epochs(build, weigh, ONE_EPOCH).result()


def cases() -> list[Case]:
    """Every side with every number of workers."""
    found: list[Case] = []
    for count in WORKERS:
        group = f"{count} workers"
        small = count == WORKERS[0]
        once = None if small else 1
        spawn = partial(case_torch, workers=count, start_method="spawn")
        fork = partial(case_torch, workers=count, start_method="fork")
        subclass = partial(case_swift, workers=count, subclass=True)
        found += [
            Case(
                f"swift_{count}",
                f"ours, {count}",
                Side.OURS,
                partial(case_swift, workers=count),
                smoke=small,
                group=group,
            ),
            Case(
                f"swift_subclass_{count}",
                f"ours, torch Dataset, {count}",
                Side.OURS,
                subclass,
                smoke=small,
                group=group,
            ),
            Case(
                f"torch_spawn_{count}",
                f"torch, spawn, {count}",
                Side.TORCH,
                spawn,
                rounds=once,
                smoke=small,
                group=group,
            ),
            Case(
                f"torch_fork_{count}",
                f"torch, fork, {count}",
                Side.CEILING,
                fork,
                rounds=once,
                smoke=small,
                group=group,
            ),
        ]
    return found


def goals() -> list[Goal]:
    """What each number of workers should reach."""
    found: list[Goal] = []
    for count in WORKERS:
        found += [
            Goal(f"ours {count}, s", f"swift_{count}", at_most=0.3),
            Goal(f"ours torch Dataset {count}, s", f"swift_subclass_{count}", at_most=1.0),
            Goal(f"torch spawn {count} / ours", f"torch_spawn_{count}", f"swift_{count}"),
        ]
    return found


QUESTION = Question(
    name="first_batch",
    title="First batch: from constructing the loader to the first batch, 2 to 16 workers",
    metric="first_batch_s",
    unit="seconds",
    higher_is_better=False,
    cases=tuple(cases()),
    goals=tuple(goals()),
    columns=(Column("seconds", "epoch s"),),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
