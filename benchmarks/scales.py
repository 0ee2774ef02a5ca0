"""Weighs the process that started it, and all below that one, itself left out, until it is told to stop.

A process and not a thread of the one that is weighed: beside a thread our loader does not copy the script, so what was
weighed would not be what a plain script has. Its answer, and what ends it, are lines: see `Scales`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from statistics import median

from benchmarks import machine
from benchmarks.apart import below
from benchmarks.private_memory import held_mb

_EVERY_S = 0.05


class Scales:
    """The side of who is weighed."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scales"],
            cwd=machine.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.mark()  # nothing is to be missed

    def mark(self) -> None:
        """What follows is weighed apart; returns once it was heard."""
        self._say("mark")

    def end(self) -> list[dict[str, float]]:
        """For each part: the most that all held, the median of that, and the median of this process alone; in MB."""
        found: list[dict[str, float]] = json.loads(self._say("end"))
        self._child.communicate()
        return found

    def _say(self, word: str) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{word}\n")
        self._child.stdin.flush()
        return self._child.stdout.readline()


def main() -> None:
    """The child's side."""
    trainer, parts = os.getppid(), [list[tuple[float, float]]()]
    while os.getppid() == trainer:
        pids = [trainer, *(pid for pid in below(trainer) if pid != os.getpid())]
        parts[-1].append((held_mb(pids), held_mb([trainer])))
        if not select.select([0], [], [], _EVERY_S)[0]:
            continue
        if sys.stdin.readline() != "mark\n":
            break
        parts.append([])
        print("heard", flush=True)
    print(json.dumps([_summed_up(part) for part in parts[1:]]), flush=True)


def _summed_up(part: list[tuple[float, float]]) -> dict[str, float]:
    whole, alone = zip(*part, strict=True)
    return {"peak_mb": max(whole), "steady_mb": median(whole), "trainer_mb": median(alone)}


if __name__ == "__main__":
    main()
