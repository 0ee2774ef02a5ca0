"""Loaders that tests serve, and the servers: ``python -m tests.served_loaders NAME ADDRESS SETTINGS``."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from swift_loader import SwiftLoader
from tests.served_streams import ROOT

#: So many bytes are compared by their digest: as numbers they would take seconds of a core.
_MANY_NBYTES = 10_000


class Rows:
    """Arrays, numbers, texts, and what is drawn at random."""

    def __init__(self, count: int = 96) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        row = np.random.default_rng(index).random((3, 8), dtype=np.float32)
        return {"x": row, "y": (index, [f"row {index}", np.uint8(index % 256)]), "drawn": np.random.rand()}


class Slow(Rows):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.003)
        return super().__getitem__(index)


class Counted(Rows):
    """Writes down what it is asked for."""

    def __init__(self, count: int = 96, path: str = "") -> None:
        super().__init__(count)
        self.path = path

    def __getitem__(self, index: int) -> Any:
        with open(self.path, "a") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)


class Images(Rows):
    """Large batches."""

    def __getitem__(self, index: int) -> Any:
        return np.full((3, 224, 224), index % 256, np.uint8)


class Named(Images):
    """Large batches with what is no array."""

    def __getitem__(self, index: int) -> Any:
        return {"image": super().__getitem__(index), "name": f"row {index}"}


class Failing(Rows):
    def __getitem__(self, index: int) -> Any:
        if index == 21:
            raise LookupError("row 21 is missing")
        return super().__getitem__(index)


class Deadly(Rows):
    def __getitem__(self, index: int) -> Any:
        if index == 21:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Pair(NamedTuple):
    first: int
    second: int


class Unsendable(Rows):
    def __getitem__(self, index: int) -> Any:
        return Pair(index, 2)


def collated(samples: list[Any]) -> Any:
    """What no default collate makes."""
    return ({sample["y"][0]: sample["x"] for sample in samples}, len(samples), None, 1 << 70)


def made(name: str = "Rows", consumers: int = 1, **settings: Any) -> SwiftLoader:
    settings.setdefault("seed", 7)
    if settings.get("collate_fn"):
        settings["collate_fn"] = collated
    given = {"path": settings.pop("path")} if "path" in settings else {}
    return SwiftLoader(globals()[name], given, 8, consumers, 2, **settings)


def start(name: str, address: str, key: Any = None, **settings: Any) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.served_loaders", name, address, repr(key), repr(settings)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def serving(name: str, address: str, key: Any = None, **settings: Any) -> Iterator[subprocess.Popen[str]]:
    server = start(name, address, key, **settings)
    try:
        yield server
    finally:
        server.terminate()
        server.communicate(timeout=10)


def plain(batch: Any) -> Any:
    """A batch as values that can be compared."""
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(map(plain, batch))
    if getattr(batch, "nbytes", 0) > _MANY_NBYTES:
        return str(batch.dtype), tuple(batch.shape), hashlib.blake2b(np.ascontiguousarray(batch)).hexdigest()
    return batch.tolist() if hasattr(batch, "tolist") else batch


if __name__ == "__main__":
    if most := os.environ.get("SWIFT_TESTS_MOST_FILES"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(most), int(most)))
    given = ast.literal_eval(sys.argv[4])
    version = given.pop("version", None)
    made(sys.argv[1], **given).serve(sys.argv[2], key=ast.literal_eval(sys.argv[3]), version=version)
