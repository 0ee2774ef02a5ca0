"""A copy of the trainer, which workers are forked from: when one may be made, and how nobody is disturbed by that.

All that the script has is simply there: its classes, settings, modules, hash seed and dataset, in memory that is
shared until somebody writes to it. It is made in milliseconds, where `harm` finds none.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from swift_loader.host.memory import free_nbytes
from swift_loader.host.procfs import open_files
from swift_loader.telemetry.words import nbytes

#: Of a trainer that holds more than this, or more than this part of what is free, no copy is made: what it lets go of
#: later would stay with the copy. A dataset that was given is to stay, so then it does not count.
_MUCH_NBYTES = 1 << 30
_MUCH_SHARE = 1 / 8
#: Libraries that say themselves, or whose users do, that a process which has loaded them is not to be forked.
_AGAINST_FORKING = ("jax", "tensorflow", "ray", "mpi4py.MPI", "torch_xla")
_ACCELERATOR = re.compile(r"/dev/(nvidia|kfd|dxg|dri/renderD|accel|davinci|hl\d|neuron)")
_ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/accel", "/dev/davinci_manager", "/dev/neuron0")
_HARMLESS_BACKENDS = {"gloo", "fake"}
#: torch's own native threads: after the fork they are not there, and workers need none.
_THREADS_OF_TORCH = ("pt_", "gloo_")
_THREADS_OF_OURS = "swift-"
_THREAD_OF_TQDM = "tqdm_monitor"


def harm(*, holds_dataset: bool = False) -> str | None:
    """Why a copy of this process could do harm now; None where it would not."""
    if not Path("/proc/self/fd").is_dir():
        return "there is no /proc to look at"
    looks: list[Callable[[], str | None]] = [accelerator_in_use, _library_against_it, _process_group, _any_threads]
    if not holds_dataset:
        looks.append(_much_memory)
    return next((why for look in looks if (why := look()) is not None), None)


def accelerator_in_use() -> str | None:
    """Which accelerator this process has begun to use: a copy could not use it, nor let go of it."""
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu", "mtia", "npu", "hpu", "mlu"):
        module = getattr(torch, name, None)
        if module is not None and getattr(module, "is_initialized", bool)():
            return f"torch.{name} was initialised"
    opened = next(filter(None, map(_ACCELERATOR.match, open_files().values())), None)
    return None if opened is None else f"{opened.string} is open"


def has_accelerator() -> bool:
    """Whether there is one on this host, which the script will want to use."""
    return any(Path(device).exists() for device in _ACCELERATORS)


def other_threads() -> list[str]:
    """The names of threads beside this one that may hold a lock: all but ours, and tqdm's, which `quiet` stops."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    return [name for name in others if not name.startswith(_THREADS_OF_OURS) and name != _THREAD_OF_TQDM]


def others_told(threads: Iterable[str]) -> str | None:
    """In words."""
    names = ", ".join(threads)
    return f"other threads run ({names})" if names else None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Around the fork: nobody who may run beside us is in the middle of something."""
    tqdm: Any = sys.modules.get("tqdm.std")
    lock = None if tqdm is None else tqdm.tqdm.get_lock()
    # What the user has set up for signals must not run in the child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with lock or contextlib.nullcontext():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _any_threads() -> str | None:
    """Of Python, also those that were started without its threading module; and native ones."""
    known = {thread.ident: thread.native_id for thread in threading.enumerate()}
    nameless = [f"thread {ident}" for ident in sys._current_frames() if ident not in known]
    return others_told([*other_threads(), *nameless, *_strange_native_threads(set(known.values()))])


def _library_against_it() -> str | None:
    return next((f"{name} is loaded" for name in _AGAINST_FORKING if name in sys.modules), None)


def _process_group() -> str | None:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    config = str(distributed.get_backend_config())
    backends = {part.rpartition(":")[2].strip() for part in config.split(",")}
    others = sorted(backends - _HARMLESS_BACKENDS)
    return f"there is a process group of {', '.join(others)}" if others else None


def _much_memory() -> str | None:
    """Libraries and mapped files do not count: they cost nothing once more. Slots of other loaders do."""
    text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    told = dict(line.split(":", 1) for line in text.splitlines() if line.startswith("Rss"))
    if "RssAnon" not in told:
        return "this system does not tell how much memory a process has of its own"
    held = sum(int(told.get(kind, "0").split()[0]) for kind in ("RssAnon", "RssShmem")) * 1024
    if held <= min(_MUCH_NBYTES, int(free_nbytes() * _MUCH_SHARE)):
        return None
    return f"this process holds {nbytes(held)}, which a copy of it would keep"


def _strange_native_threads(known: set[int | None]) -> list[str]:
    """Pools of arithmetic have the process's name, and are set to one thread in the copy. Whoever gives his threads
    names of their own (runtimes of Rust and gRPC, polars, JAX) mostly waits in the copy for what they would do.
    """
    tasks = Path("/proc/self/task")
    names = {int(task.name): _name_of(task) for task in tasks.iterdir()}
    usual = {names.get(os.getpid(), ""), *(names.get(native, "") for native in known if native)}
    return [
        name
        for native, name in names.items()
        if native not in known and name and name not in usual and not name.startswith(_THREADS_OF_TORCH)
    ]


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # it has just ended
        return ""
