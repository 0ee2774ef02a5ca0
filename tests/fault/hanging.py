"""Datasets whose workers hang in any way, or start processes of their own: without torch, which none of them needs."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swift_loader import SwiftLoader
from tests.datasets import Numbers, note

_FOREVER_S = 1e6


def _in_python() -> None:
    while True:
        pass


def _start_others() -> list[Any]:
    """Children and grandchildren of a worker, and a thread that does not end."""
    threading.Thread(target=time.sleep, args=(_FOREVER_S,)).start()
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(_FOREVER_S,))
    process.start()
    return [process, _program()]


def _program() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", "sleep 1000 & wait"])


_HANGS: dict[str, Callable[[], Any]] = {
    "busy": _in_python,
    "in C": lambda: re.match("(a+)+$", "a" * 64 + "b"),
    "asleep": lambda: time.sleep(_FOREVER_S),
    "parents": lambda: (_start_others(), time.sleep(_FOREVER_S)),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "closing": lambda: time.sleep(_FOREVER_S),
}


class Hanging:
    """The first batch can be made; every other sample brings its worker into the state that is asked for."""

    def __init__(self, folder: str, state: str) -> None:
        self.folder, self.state = Path(folder), state
        self.inner: Any = None
        if state == "building":
            self._tell()
            time.sleep(_FOREVER_S)
        if state == "nested":
            loader = SwiftLoader(Hanging, {"folder": folder, "state": "idle"}, 8, 1, 2, shuffle=False)
            self.inner = iter(loader)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        if self.inner is not None and index == 0:
            next(self.inner)
        if index >= 8 and self.state in _HANGS:
            self._tell()
            _HANGS[self.state]()
        return index

    def _tell(self) -> None:
        (self.folder / f"at-{os.getpid()}").touch()


class StartsOthers(Numbers):
    """Starts processes and a thread when it is built, and ends none of them; notes their numbers.

    Programs alone have nothing of the worker's open; a process that it has forked has all.
    """

    def __init__(self, folder: str, count: int, *, programs_alone: bool) -> None:
        super().__init__(count)
        self.kept = [_program(), _program()] if programs_alone else _start_others()
        for one in self.kept:
            note(folder, "started", one.pid)
