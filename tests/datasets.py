"""Small datasets that workers can import. Nothing here imports torch, so workers that have it got it elsewhere."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from swift_loader import worker_info

DEADLINE_S = 60.0


class Numbers:
    """Sample i is i."""

    def __init__(self, count: int = 64) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return index


class Records(Numbers):
    """Sample i is a dict that holds i in several forms."""

    def __getitem__(self, index: int) -> Any:
        return {"i": index, "x": np.full(5, index, np.float32), "name": f"sample {index}"}


class Pictures(Numbers):
    """Sample i is a picture whose bytes are all i, and a label."""

    def __init__(self, count: int = 32, nbytes: int = 64 * 1024) -> None:
        super().__init__(count)
        self.nbytes = nbytes

    def __getitem__(self, index: int) -> Any:
        return np.full(self.nbytes, index % 251, np.uint8), index


class Growing(Numbers):
    """Sample i has a length of its own, some of them large; batches of one sample differ in size."""

    def __getitem__(self, index: int) -> Any:
        return np.full(1 << (index % 19), index, np.int32)


class Noted(Numbers):
    """Writes each call to a file of the worker's own in ``folder``, which `calls` reads."""

    def __init__(self, folder: str, count: int = 64, **options: Any) -> None:
        super().__init__(count)
        self.folder = folder
        self.options = options
        note(folder, "init")

    def __getitem__(self, index: int) -> Any:
        note(self.folder, "get", index)
        if index == self.options.get("gate_at"):
            wait_for(Path(self.folder) / "open")
        return index


class BothInOneSet(Noted):
    """Its samples can be had only if ``parties`` of them are asked for at the same time, by threads."""

    def __init__(self, folder: str, count: int, parties: int) -> None:
        super().__init__(folder, count)
        self.parties = parties
        self._barrier: threading.Barrier | None = None
        self._guard = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_barrier", "_guard")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _barrier=None, _guard=threading.Lock())

    def __getitem__(self, index: int) -> Any:
        with self._guard:
            if self._barrier is None:
                self._barrier = threading.Barrier(self.parties, timeout=DEADLINE_S)
        self._barrier.wait()
        return index


class Failing(Numbers):
    """Sample ``bad`` raises, the first ``times`` times that a worker asks for it."""

    def __init__(self, count: int = 16, bad: tuple[int, ...] = (5,), times: int = 1 << 30) -> None:
        super().__init__(count)
        self.bad = bad
        self.left = dict.fromkeys(bad, times)

    def __getitem__(self, index: int) -> Any:
        if self.left.get(index, 0) > 0:
            self.left[index] -= 1
            raise OSError(f"disc error at {index}")
        return index


class Deadly(Numbers):
    """Sample ``bad`` ends the worker, in one of several ways, the first ``times`` times in all workers."""

    def __init__(self, folder: str, how: str = "kill", count: int = 32, bad: int = 13, times: int = 1 << 30) -> None:
        super().__init__(count)
        self.folder, self.how, self.bad, self.times = folder, how, bad, times

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and len(calls(self.folder)) < self.times:
            note(self.folder, "dies", index)
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            elif self.how == "sys.exit":
                sys.exit(3)
            os._exit(0 if self.how == "exit 0" else 7)
        return index


class Hangs(Numbers):
    """Sample ``bad`` never comes, the first ``times`` times in all workers."""

    def __init__(self, folder: str, count: int = 32, bad: int = 13, times: int = 1 << 30) -> None:
        super().__init__(count)
        self.folder, self.bad, self.times = folder, bad, times

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and len(calls(self.folder)) < self.times:
            note(self.folder, "hangs", index)
            time.sleep(3600)
        return index


class DiesWhenBuilt(Numbers):
    def __init__(self, folder: str) -> None:
        note(folder, "init")
        os._exit(9)


class CannotBeBuilt(Numbers):
    def __init__(self) -> None:
        raise FileNotFoundError("/no/such/folder")


class LengthByWorker(Numbers):
    """len() says something else in every worker."""

    def __len__(self) -> int:
        info = worker_info()
        return 64 + (0 if info is None else info.worker)


class Random(Numbers):
    """What the generators say when sample i is made."""

    def __getitem__(self, index: int) -> Any:
        info = worker_info()
        assert info is not None
        drawn = np.array([random.random(), np.random.random(), info.rng.random()])
        return {"i": index, "drawn": drawn, "epoch": info.epoch, "step": info.step}


class Surroundings(Numbers):
    """What a worker finds around it."""

    def __getitem__(self, index: int) -> Any:
        info = worker_info()
        assert info is not None
        return json.dumps(
            {
                "pid": os.getpid(),
                "torch": "torch" in sys.modules,
                "omp": os.environ.get("OMP_NUM_THREADS"),
                "openblas": os.environ.get("OPENBLAS_NUM_THREADS"),
                "mkl": os.environ.get("MKL_NUM_THREADS"),
                "threads": len(os.listdir("/proc/self/task")),
                "consumer": info.consumer,
                "worker": info.worker,
                "epoch": info.epoch,
                "step": info.step,
                "seed": info.seed,
                "main": sys.modules["__main__"].__dict__.get("MARK"),
            }
        )


class PeakMemory(Numbers):
    """Batches of some megabytes each; a sample tells the most private memory that its worker has ever had."""

    def __init__(self, count: int, nbytes: int) -> None:
        super().__init__(count)
        self.sample = np.ones(nbytes, np.uint8)
        self.begun: int | None = None

    def __getitem__(self, index: int) -> Any:
        private = private_nbytes()
        self.begun = private if self.begun is None else self.begun
        return self.sample, private - self.begun


class Slow(Numbers):
    """One sample in ``every`` takes its time."""

    def __init__(self, count: int = 64, seconds: float = 0.01, every: int = 1) -> None:
        super().__init__(count)
        self.seconds, self.every = seconds, every

    def __getitem__(self, index: int) -> Any:
        if index % self.every == 0:
            time.sleep(self.seconds)
        return index


class Whole(Numbers):
    """Gives whole batches, and notes that it was asked for them."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [{"i": index, "asked": len(indices)} for index in indices]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a dataset with __getitems__ is asked for whole batches")


class ReadsInto(Numbers):
    """Writes its samples straight into their places."""

    def __getitem__(self, index: int) -> Any:
        return {"x": np.full((3, 2), index, np.int32), "direct": False}

    def read_into(self, indices: list[int], rows: Any) -> None:
        for row, index in enumerate(indices):
            rows["x"][row] = index
            rows["direct"][row] = True


class SameBuffer(Numbers):
    """Gives the same array each time, with other contents."""

    def __init__(self, count: int = 64) -> None:
        super().__init__(count)
        self.buffer = np.zeros(7, np.int64)

    def __getitem__(self, index: int) -> Any:
        self.buffer[:] = index
        return self.buffer


class Ragged(Numbers):
    def __getitem__(self, index: int) -> Any:
        return {"boxes": np.full((1 + index % 3, 4), index, np.float32), "i": index}


class Unbatchable(Numbers):
    def __getitem__(self, index: int) -> Any:
        return {"i": index, "what": {1, 2, 3}}


class FollowsEpochs(Numbers):
    """Is told the epoch."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        return self.epoch


class Point(NamedTuple):
    x: float
    y: np.ndarray


@dataclass
class Box:
    corner: Point
    label: str


class Nested(Numbers):
    def __getitem__(self, index: int) -> Any:
        point = Point(index + 0.5, np.array([index, -index]))
        return {"boxes": [Box(point, f"box {index}"), (index, None)], "raw": b"%d" % index}


class Holding(Numbers):
    """Holds whatever it was given, sendable or not."""

    def __init__(self, held: Any) -> None:
        super().__init__(16)
        self.held = held


class WithoutLength:
    def __getitem__(self, index: int) -> Any:
        return index


class Iterates:
    def __iter__(self) -> Any:
        return iter(range(10))


def note(folder: str, *words: Any) -> None:
    """One line to a file that this process alone writes."""
    with open(Path(folder) / f"calls-{os.getpid()}", "a", encoding="utf-8") as file:
        file.write(" ".join(map(str, (time.monotonic_ns(), *words))) + "\n")


@dataclass(frozen=True, order=True)
class Call:
    at_ns: int
    pid: int
    what: str
    index: int = -1


def calls(folder: str | Path, what: str | None = None) -> list[Call]:
    """What was noted in ``folder``, by any process, in the order of time."""
    found = []
    for path in Path(folder).glob("calls-*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            at_ns, name, *index = line.split()
            found.append(Call(int(at_ns), int(path.name.partition("-")[2]), name, *map(int, index)))
    return sorted(call for call in found if what is None or call.what == what)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.005)


def private_nbytes() -> int:
    """This process's own memory: what it shares with nobody, files and slots left out."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell")


class HalfFailing(Numbers):
    """Half of its samples cannot be had."""

    def __getitem__(self, index: int) -> int:
        if index % 2:
            raise ValueError(f"sample {index}")
        return index
