"""A dataset with faults at chosen samples, for any loader.

    dataset = Faulty(dataset, {13: "segfault", 20: "hang"})             # once each, then the sample is as always
    dataset = Faulty(dataset, {13: "raise"}, times=None)                # every time

How often a fault has happened is counted across processes and starts, in a folder of empty files.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from swift_loader.errors import ConfigError


class InjectedFault(Exception):
    """What the fault "raise" raises."""


class Faulty:
    """``dataset``, but that chosen samples do harm first.

    Args:
        dataset: Any map-style dataset.
        faults: By index: the name of a fault, or a function that is called with the index.
        times: How often each fault happens, in all processes together; None for always.
        folder: Where that is counted; by default a temporary one, which goes with this object.

    A fault that lets its process live is followed by the sample. The names are "raise"; of death "kill" (SIGKILL),
    "segfault", "abort", "exit" (with code 0); of standing still "stop" (SIGSTOP), "hang" (sleeps for ever), "loop" (in
    C, never letting go of the interpreter lock); and "slow" (a second more), "leak" (10 MB more), "unsendable" (a
    sample that no process can send).

    Example:
        >>> from swift_loader.testing import Faulty
        >>> dataset = Faulty([10, 11, 12], {1: "raise"})
        >>> try:
        ...     dataset[1]
        ... except Exception as error:
        ...     print(error)
        sample 1 was told to fail
        >>> dataset[1]
        11
    """

    def __init__(
        self,
        dataset: Any,
        faults: Mapping[int, str | Callable[[int], object]],
        times: int | None = 1,
        folder: str | Path | None = None,
    ) -> None:
        for fault in faults.values():
            if isinstance(fault, str) and fault not in _FAULTS and fault != "unsendable":
                raise ConfigError(f"there is no fault {fault!r}: {', '.join([*_FAULTS, 'unsendable'])}, or a function")
        self._dataset = dataset
        self._faults = dict(faults)
        self._times = times
        self._folder = str(folder or tempfile.mkdtemp(prefix="swift-faulty-"))
        if folder is None:
            weakref.finalize(self, _remove, self._folder, os.getpid())

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        fault = self._faults.get(index)
        if fault is None or not self._is_due(index):
            return self._dataset[index]
        if fault == "unsendable":
            return {"lock": Lock(), "sample": self._dataset[index]}
        (_FAULTS[fault] if isinstance(fault, str) else fault)(index)
        return self._dataset[index]

    def __getattr__(self, name: str) -> Any:
        # Not what would give samples without asking here, and nothing while this is unpickled.
        if name.startswith("__") or name == "read_into" or "_dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._dataset, name)

    @property
    def happened(self) -> dict[int, int]:
        """How often each fault has happened so far."""
        counts = dict.fromkeys(self._faults, 0)
        for path in Path(self._folder).glob("*-*"):
            counts[int(path.name.partition("-")[0])] += 1
        return counts

    def _is_due(self, index: int) -> bool:
        """Claims one of its times: a file can be made only once, whoever else tries at the same moment."""
        count = 0
        while self._times is None or count < self._times:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(f"{self._folder}/{index}-{count}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                return True
            count += 1
        return False


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked copy ends earlier, and is not the owner
        shutil.rmtree(folder, ignore_errors=True)


def _raise(index: int) -> None:
    raise InjectedFault(f"sample {index} was told to fail")


def _kill(_index: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _segfault(_index: int) -> None:
    ctypes.string_at(0)


def _abort(_index: int) -> None:
    os.abort()


def _exit(_index: int) -> None:
    os._exit(0)


def _stop(_index: int) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _hang(_index: int) -> None:
    while True:
        time.sleep(3600)


def _loop(_index: int) -> None:
    re.match("(a+)+$", "a" * 64 + "b")


def _slow(_index: int) -> None:
    time.sleep(1)


_leaked: list[bytes] = []


def _leak(_index: int) -> None:
    _leaked.append(os.urandom(10_000_000))


_FAULTS: dict[str, Callable[[int], object]] = {
    "raise": _raise,
    "kill": _kill,
    "segfault": _segfault,
    "abort": _abort,
    "exit": _exit,
    "stop": _stop,
    "hang": _hang,
    "loop": _loop,
    "slow": _slow,
    "leak": _leak,
}
