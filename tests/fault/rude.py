"""Datasets that do to their process what they should not. Imports nothing that workers would wait for."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.datasets import calls, note
from tests.traced import Traced


def _forks_and_comes_back() -> None:
    os.fork()


def _forks_a_child_that_raises() -> None:
    if os.fork() == 0:
        raise OSError("in the child")
    os.wait()


def _closes_the_standard_streams() -> None:
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):  # the worker has done so before
            os.close(fd)


def _breaks_the_streams() -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]
    sys.stdout = object()  # type: ignore[assignment]


def _takes_all_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def _sets_what_can_be_set() -> None:
    import torch

    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    np.seterr(all="raise")
    np.set_printoptions(threshold=1)
    warnings.simplefilter("error")
    gc.disable()
    sys.setrecursionlimit(120)
    os.environ.clear()
    os.umask(0o777)
    os.chdir("/")
    threading.stack_size(1 << 16)


def _seeds() -> None:
    """As many a dataset does: for itself, and for all that come after it in the process."""
    random.seed(0)
    np.random.seed(0)


def _prints_much() -> None:
    print("x" * 3_000_000, file=sys.stderr)


#: What holds with each of these: every sample once, in order, with the bytes of a run in which nobody does this.
RUDE: dict[str, Callable[[], None]] = {
    "forks and comes back in both": _forks_and_comes_back,
    "forks a child that raises": _forks_a_child_that_raises,
    "closes the standard streams": _closes_the_standard_streams,
    "breaks the streams": _breaks_the_streams,
    "takes all signals, and interrupts itself": _takes_all_signals,
    "sets what can be set": _sets_what_can_be_set,
    "seeds": _seeds,
    "prints much": _prints_much,
}
#: Done by samples number ...
AT = (13, 14, 77)


class Rude(Traced):
    def __init__(self, how: str, count: int = 160) -> None:
        super().__init__(count)
        self.how = how

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = super().__getitem__(index)
        if index in AT and self.how:
            RUDE[self.how]()
            time.sleep(0.01)  # so that a child which came back has its time too
        return sample


def polite(count: int) -> Rude:
    """As `Rude`, and does nothing."""
    return Rude("", count)


class ClosesAll(Traced):
    """Sample 13 closes every descriptor of its worker, ours too: the first ``times`` times."""

    def __init__(self, folder: str, times: int) -> None:
        super().__init__()
        self.folder, self.times = folder, times

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 13 and len(calls(self.folder, "closes")) < self.times:
            note(self.folder, "closes")
            os.closerange(3, 256)
        return super().__getitem__(index)


# A wrapper that hands everything on has the inner dataset's way to whole batches, which leaves its own work out.


class Whole(Traced):
    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [{**Traced.__getitem__(self, index), "whole": True} for index in indices]


class Wrapper:
    def __init__(self, count: int = 16) -> None:
        self.inner = Whole(count)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.inner[index], "own": 2 * index}


class Derived(Whole):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "own": 2 * index}
