"""Streams that tests serve, and the servers: as a script, ``python -m tests.served_streams NAME PORT SETTINGS``."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader.streams import (
    DataStream,
    IndexableDataset,
    IterableDataset,
    SequentialScheme,
    ShuffledScheme,
    Transformer,
    start_server,
)

ROOT = Path(__file__).resolve().parents[1]


class Slow(Transformer):
    """Waits before each batch."""

    def get_data(self, request: Any = None) -> Any:
        time.sleep(0.02)
        return next(self.child_epoch_iterator)


class Raising(Transformer):
    """Its third batch raises."""

    count = 0

    def get_data(self, request: Any = None) -> Any:
        self.count += 1
        data = next(self.child_epoch_iterator)
        if self.count == 3:
            raise LookupError("the third batch is missing")
        return data


class Dying(Transformer):
    """Its process ends in the third batch."""

    count = 0

    def get_data(self, request: Any = None) -> Any:
        self.count += 1
        if self.count == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return next(self.child_epoch_iterator)


def shuffled(count: int = 40, size: int = 4) -> DataStream:
    features = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    dataset = IndexableDataset({"f": features, "t": list(range(count))})
    return DataStream.default_stream(dataset, iteration_scheme=ShuffledScheme(count, size))


def slow() -> Slow:
    return Slow(shuffled())


def raising() -> Raising:
    return Raising(shuffled())


def dying() -> Dying:
    return Dying(shuffled())


def beside_a_thread() -> DataStream:
    threading.Thread(target=time.sleep, args=(600,), name="another", daemon=True).start()
    return shuffled()


def ragged_beside_a_thread() -> DataStream:
    beside_a_thread()
    return ragged()


def ragged() -> DataStream:
    return DataStream(IterableDataset({"f": [[[1], [2, 3]]]}))


def of_many_types() -> DataStream:
    values = [
        (np.float64(1.5), np.arange(6).reshape(2, 3).T, np.array(["a", "bcd"]), np.zeros((0, 4), np.int16)),
        (np.datetime64("2020-01-01"), np.array([1 + 2j]), b"bytes", [[True, False]]),
    ]
    columns = list(zip(*values, strict=True))
    return DataStream(IterableDataset({str(at): column for at, column in enumerate(columns)}))


def large() -> DataStream:
    images = np.arange(12 * 1_000_000, dtype=np.uint8).reshape(12, 1_000_000)
    return DataStream(IndexableDataset({"f": images}), iteration_scheme=SequentialScheme(12, 3))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def start(name: str, port: int, **settings: Any) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.served_streams", name, str(port), repr(settings)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def serving(name: str, **settings: Any) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server of that stream: its port and its process."""
    port = free_port()
    server = start(name, port, **settings)
    try:
        yield port, server
    finally:
        server.terminate()
        server.communicate(timeout=10)


def family_of(pid: int) -> set[int]:
    """The processes whose parent it is."""
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


if __name__ == "__main__":
    start_server(globals()[sys.argv[1]](), int(sys.argv[2]), **ast.literal_eval(sys.argv[3]))
