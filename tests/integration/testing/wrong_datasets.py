"""Datasets with one thing wrong each, and one with nothing wrong: what the public checks are tried on."""

from __future__ import annotations

import ctypes
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np


class Right:
    """Nothing is wrong here; it draws, as augmentation does."""

    def __init__(self, count: int = 200) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "image": np.full((3, 8, 8), index % 251, np.uint8), "noise": np.random.random()}


class Plain(Right):
    def __getitem__(self, index: int) -> Any:
        return np.full(1000, index % 251, np.uint8), index


class HoldsAGenerator(Right):
    def __init__(self) -> None:
        super().__init__()
        self.parts = {"names": (str(i) for i in range(3))}


class CannotBeBuilt(Right):
    def __init__(self) -> None:
        Path("/no/such/file").read_bytes()


class DiesWhenBuilt(Right):
    def __init__(self) -> None:
        os._exit(3)


class HangsWhenBuilt(Right):
    def __init__(self) -> None:
        time.sleep(3600)


class Large(Right):
    def __init__(self) -> None:
        super().__init__()
        self.kept = np.ones(75_000_000)  # 600 MB


class LengthByProcess(Right):
    def __len__(self) -> int:
        return 1000 + os.getpid()


class OneTooLong(Right):
    def __getitem__(self, index: int) -> Any:
        return list(range(self.count - 1))[index]


class Raises(Right):
    def __getitem__(self, index: int) -> Any:
        if index % 10 == 9:
            raise OSError(f"disc error at {index}")
        return index


class LastOne(Right):
    """The last sample does harm."""

    def __getitem__(self, index: int) -> Any:
        if index == self.count - 1:
            self.harm()
        return index

    def harm(self) -> None:
        raise NotImplementedError


class Segfaults(LastOne):
    def harm(self) -> None:
        ctypes.string_at(0)


class Hangs(LastOne):
    def harm(self) -> None:
        time.sleep(3600)


class Unbatchable(Right):
    def __getitem__(self, index: int) -> Any:
        return {"index": index, "words": {"a", "b"}}


class Ragged(Right):
    def __getitem__(self, index: int) -> Any:
        return {"boxes": np.ones((1 + index % 5, 4), np.float32), "label": index}


class OtherKeys(Right):
    def __getitem__(self, index: int) -> Any:
        return {"label": index} if index % 2 else {"label": index, "mask": 1}


class OtherTypes(Right):
    def __getitem__(self, index: int) -> Any:
        return np.ones(3, np.uint16 if index % 2 else np.int64)


class Promoted(Right):
    def __getitem__(self, index: int) -> Any:
        return np.ones(3, np.float32 if index % 2 else np.float64)


class NotFinite(Right):
    def __getitem__(self, index: int) -> Any:
        return np.array([1.0, np.nan if index % 3 else 0.0])


class OwnGenerator(Right):
    """The classic of torch's loader, where each worker's copy begins with the same numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "image": self.rng.random(4)}


class HiddenGenerator(Right):
    """Nobody sees into a function that has begun."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.draw = (rng.random() for _ in range(1 << 60)).__next__

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "noise": self.draw()}


class DrawsOnce(Right):
    """What all samples share is drawn when the first of a worker is asked for."""

    order: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        if self.order is None:
            self.order = self.rng.permutation(self.count)
        return int(self.order[index])


class TellsTheTime(Right):
    def __getitem__(self, index: int) -> Any:
        return {"index": index, "at": time.time()}


class OrderOfASet(Right):
    def __init__(self) -> None:
        super().__init__()
        self.names = list({f"name {i}" for i in range(200)})

    def __getitem__(self, index: int) -> Any:
        return self.names[index]


class LengthByHash(Right):
    def __init__(self) -> None:
        self.count = sum(hash(f"name {i}") % 10 < 8 for i in range(200))


class SeedsItself(Right):
    def __getitem__(self, index: int) -> Any:
        random.seed(index)
        return random.random()


class LeavesALock(Right):
    """A worker that is killed while it reads leaves the lock to the others."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        lock = Path(self.folder) / "lock"
        lock.with_name(f"lock-{index}").touch(exist_ok=False)
        time.sleep(0.15)  # nearly always: whoever is killed is at it
        lock.with_name(f"lock-{index}").unlink()
        return index


class GivesWholeBatches(Right):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [super(GivesWholeBatches, self).__getitem__(index) for index in indices]


class AddsToSamples(GivesWholeBatches):
    """Its own way to a sample is the one that a loader takes, not the whole batches that it has inherited."""

    def __getitem__(self, index: int) -> Any:
        return {**super().__getitem__(index), "at": time.time()}


class SharedFile(Right):
    """One file handle, whose place threads move for each other."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = open(path, "rb")  # noqa: SIM115

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index * 1000)
        time.sleep(0.0005)  # so that another thread comes in between, on any machine
        return np.frombuffer(self.file.read(1000), np.uint8)


class Waits(Right):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return index


class Leaks(Right):
    kept: list[Any] = []  # noqa: RUF012

    def __getitem__(self, index: int) -> Any:
        self.kept.append(np.ones(10_000))
        return index


class FailsTheSecondTime(Right):
    """What one worker builds is in the way of the next."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        builds = len(list(Path(folder).iterdir()))
        (Path(folder) / f"built-{builds}").touch(exist_ok=False)
        if builds >= 2:
            raise FileExistsError("the index is there already")
