"""A ceiling: two workers forked from a process that has only numpy, each with a dataset that it iterates over.

Run as a program; prints one JSON line with each worker's private memory. Imports neither torch nor swift_loader.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

from benchmarks.private_memory import private_mb
from benchmarks.workloads import Floats

WORKERS = 2
BATCH_SIZE = 32


def live(count: int, ready: int, finish: int) -> None:
    """A worker: construct the dataset, go through it once, wait until told to leave."""
    dataset = Floats(count)
    slot = np.empty((BATCH_SIZE, 128), dtype=np.float32)
    for index in range(count):
        slot[index % BATCH_SIZE] = dataset[index][0]
    os.write(ready, b"x")
    os.read(finish, 1)
    os._exit(0)


def main(count: int) -> None:
    """Fork the workers, measure them, let them go."""
    ready_read, ready = os.pipe()
    finish, finish_write = os.pipe()
    pids = []
    for _ in range(WORKERS):
        pid = os.fork()
        if not pid:
            live(count, ready, finish)
        pids.append(pid)
    for _ in pids:
        os.read(ready_read, 1)
    found = [private_mb(pid) for pid in pids]
    os.write(finish_write, b"x" * WORKERS)
    for pid in pids:
        os.waitpid(pid, 0)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
