"""Trainers that are interrupted, as by Ctrl-C in their terminal: one JSON object per line, with what they wrote.

    python -m tests.fault.interrupted --seed 1 --rounds 12

The signal goes to the trainer's whole process group, at a moment that is drawn; a second and third follow 1 to 100 ms
later. Under which method, at what samples and in which part of the script is taken in turn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from swift_loader import SwiftLoader
from tests.datasets import Numbers, Slow
from tests.fault import orphans

DATASETS: dict[str, tuple[type, dict[str, Any]]] = {
    "quick": (Numbers, {"count": 1 << 40}),
    "slow": (Slow, {"count": 1 << 40, "seconds": 0.01}),
    "endless": (Slow, {"count": 1 << 40, "seconds": 1e6}),
}
#: How often each trainer is interrupted.
TIMES = (1, 1, 2, 1, 1, 3)
#: The first signal comes so long after the beginning, at most.
WITHIN_S = {"loop": 0.5, "close": 0.2}


def train(method: str, dataset: str, part: str, told: Path, folder: Path) -> None:
    """Iterates until it is interrupted, or closes a loader again and again."""
    os.dup2(os.open(told, os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kind, kwargs = DATASETS[dataset]
    make = partial(SwiftLoader, kind, kwargs, 8, 1, 2, start_method=method, validate=dataset != "endless", seed=1)
    if part == "loop":
        (folder / "begins").touch()
        with make() as loader:
            loader.start(0)
            deque(loader, maxlen=0)
    loader = make()
    loader.start(0)
    (folder / "begins").touch()
    loader.close()
    time.sleep(3600)


def interrupted(case: tuple[str, str, str], times: int, chance: random.Random) -> dict[str, Any]:
    """One trainer, interrupted so many times."""
    method, dataset, part = case
    after_s = chance.uniform(0, WITHIN_S[part])
    gaps = [0.0, *(chance.uniform(0.001, 0.1) for _ in range(times - 1))]

    def interrupt(pid: int) -> None:
        for gap_s in gaps:
            time.sleep(gap_s)
            os.killpg(pid, signal.SIGINT)  # it is not waited for yet, so the number is still its own

    handle, name = tempfile.mkstemp(prefix="orphans-")
    os.close(handle)
    told = Path(name)
    trainer = partial(train, method, dataset, part, told)
    seconds, code = orphans.outlived(trainer, 1, interrupt, after_s)
    said = told.read_text(encoding="utf-8")
    told.unlink()
    return {
        "case": [*case, times],
        "at_s": [round(after_s, 4), *(round(gap_s, 4) for gap_s in gaps[1:])],
        "seconds": round(seconds, 4),
        "code": code,
        "said": said,
    }


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    asked = parser.parse_args()
    orphans.be_nursery()
    chance = random.Random(asked.seed)
    cases = list(itertools.product(orphans.METHODS, DATASETS, WITHIN_S))
    for number in range(asked.rounds):
        case = cases[number * 5 % len(cases)]  # 5 and the number of cases have no common divisor
        print(json.dumps(interrupted(case, TIMES[number % len(TIMES)], chance)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
