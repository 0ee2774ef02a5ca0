"""What tests see of processes, and how they wait: for a condition, with a deadline."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import psutil
import torch

from swift_loader.engines.nursery import shared
from tests import s3_server, warm

ROOT = Path(__file__).resolve().parent.parent
_ENV_OF_SCRIPTS = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default::ResourceWarning"}
#: So many numbers would be minutes of a core as Python objects, over all tests.
_MANY = 1000
#: How long what must happen may take on a machine that has much else to do: only a test that fails waits for it.
DEADLINE_S = 60.0


def until(condition: Callable[[], Any], what: str = "it", deadline_s: float = DEADLINE_S) -> Any:
    """The first true value of ``condition``."""
    deadline = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {deadline_s} s"
        time.sleep(0.005)
    return value


def soon_at_least_once(seconds: Callable[[], float], bound_s: float, tries: int = 3) -> None:
    """What takes so long does so within ``bound_s``, in one of a few tries where a busy machine gets in the way.

    For bounds that are promised, and that a machine which stands still for a moment would break. What else a try is to
    show, it asserts itself, each time.
    """
    taken: list[float] = []
    while not taken or taken[-1] > bound_s:
        assert len(taken) < tries, f"not once within {bound_s} s: {taken}"
        taken.append(seconds())


def settled(value: Callable[[], Any], for_s: float = 0.3) -> Any:
    """What ``value`` says once it has said the same for a while."""
    deadline = time.monotonic() + DEADLINE_S
    last, since = value(), time.monotonic()
    while time.monotonic() - since < for_s:
        assert time.monotonic() < deadline, "it never comes to rest"
        time.sleep(0.01)
        if (now := value()) != last:
            last, since = now, time.monotonic()
    return last


def servers_of_tests() -> set[int]:
    """Those of this process that other tests before have begun, and that live as long as it does."""
    of_python = {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}
    return warm.server.pids | s3_server.running | (of_python - {None})


def descendants(pid: int | None = None) -> list[psutil.Process]:
    """All living processes below ``pid``; without the servers of this process by default."""
    found, servers = [], set() if pid else shared.pids | servers_of_tests()
    for process in psutil.Process(pid or os.getpid()).children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.pid not in servers:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two questions
        return True


def living(pids: Iterable[int]) -> list[int]:
    """Those of ``pids`` that are processes which have not ended."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if not is_gone(psutil.Process(pid)):
                found.append(pid)
    return found


def workers(pid: int | None = None) -> list[psutil.Process]:
    """The loader's workers below ``pid``, without the server that forks them."""
    return [process for process in descendants(pid) if _name(process).startswith("swift-worker")]


def kill_one(pids: list[int], number: int) -> None:
    """Kills one of those processes, if it is still there."""
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[number % len(pids)], signal.SIGKILL)


def _name(process: psutil.Process) -> str:
    try:
        return (Path("/proc") / str(process.pid) / "comm").read_text().strip()
    except OSError:
        return ""


def begin_script(folder: Path, text: str, *words: str, name: str = "script.py", **env: str) -> subprocess.Popen[str]:
    """Starts a script that finds swift_loader and the tests' datasets."""
    path = _written(folder, name, text)
    return subprocess.Popen(
        [sys.executable, str(path), *words],
        cwd=folder,
        env={**os.environ, **_ENV_OF_SCRIPTS, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def begin_warm(folder: Path, text: str, *words: str, name: str = "script.py", **env: str) -> warm.Script:
    """The same, for a script whose own start and end is not what is tested: in a fork of one that has torch."""
    path = _written(folder, name, text)
    return _warm(folder, (str(path), *words), env)


def run_script(folder: Path, text: str, *words: str, timeout_s: float = 100.0, **env: str) -> str:
    """What a script prints; it must end well and say nothing on standard error."""
    return _ended_well(begin_script(folder, text, *words, **env), timeout_s)


def run_warm(folder: Path, text: str, *words: str, timeout_s: float = 100.0, **env: str) -> str:
    """The same of `begin_warm`."""
    return _ended_well(begin_warm(folder, text, *words, **env), timeout_s)


def warm_python(*words: str, folder: Path = ROOT, mounts: str = "", timeout_s: float = 100.0, **env: str) -> str:
    """What a Python prints that is asked for as in a shell (``-m``, ``-c``): a fork of one that has torch.

    With ``mounts``, shell commands, in a mount namespace of its own, after these. It must end well and say nothing on
    standard error.
    """
    return _ended_well(_warm(folder, words, env, mounts), timeout_s)


def told_by(*words: str, **env: str) -> Iterator[dict[str, Any]]:
    """What a Python that is started with ``words`` prints, a line of JSON at a time, while it runs.

    It is killed when no more is read, or ends well.
    """
    command = [sys.executable, *words]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
        finally:
            process.kill()
    assert process.returncode in (0, -9)


def begin_python(*words: str, folder: Path = ROOT, **env: str) -> warm.Script:
    """The same, without waiting for its end."""
    return _warm(folder, words, env)


def _warm(folder: Path, words: tuple[str, ...], env: dict[str, str], mounts: str = "") -> warm.Script:
    odd = [key for key in env if key.startswith("PYTHON") and key != "PYTHONWARNINGS"]
    assert not odd, "that is for an interpreter that starts"
    return warm.Script(folder, words, {**os.environ, **_ENV_OF_SCRIPTS, **env}, mounts)


def _written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def _ended_well(begun: subprocess.Popen[str] | warm.Script, timeout_s: float) -> str:
    with begun as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0, f"exit code {process.returncode}\n{out}\n{err}"
    assert err == "", err
    return out


def plain(batch: Any) -> Any:
    """A batch as Python values that can be compared: numbers, and of many numbers the digest of their bytes."""
    if isinstance(batch, torch.Tensor):
        if batch.numel() < _MANY:
            return str(batch.dtype), batch.tolist()
        data = batch.cpu().contiguous().view(torch.uint8).numpy()
        return str(batch.dtype), tuple(batch.shape), hashlib.blake2b(data).hexdigest()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if dataclasses.is_dataclass(batch):
        return plain(vars(batch))
    if isinstance(batch, tuple | list):
        return [plain(value) for value in batch]
    return batch


def flat(batches: Any) -> list[int]:
    """The numbers of all batches of a set whose samples are numbers."""
    return [number for batch in batches for number in batch.tolist()]
