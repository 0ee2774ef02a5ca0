"""A copy of the trainer, which workers are forked from: when one may be made, and what it must let go of.

All that the script has is simply there: its classes, settings, modules, hash seed and dataset, in memory that is
shared until somebody writes to it. It is made in milliseconds, where `harm` finds none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from swift_loader.pool import guard
from swift_loader.pool.memory import free_nbytes
from swift_loader.pool.threads import Setter, one_thread_each

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
    opened = next(filter(None, map(_ACCELERATOR.match, _opened().values())), None)
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


def be_a_copy(keep: Iterable[int], setters: Iterable[Setter]) -> None:
    """In the copy, while signals are blocked: lets go of what is the trainer's alone."""
    guard.drop_what_is_the_trainers()
    _drop_connections(set(keep))
    one_thread_each(setters)
    tqdm: Any = sys.modules.get("tqdm.std")
    if tqdm is not None:
        tqdm.tqdm.set_lock(threading.RLock())  # the one that was held while this process was made stays closed
    cv2: Any = sys.modules.get("cv2")
    if cv2 is not None:
        with contextlib.suppress(Exception):
            cv2.setNumThreads(0)  # its threads were not copied, and it would wait for them


def _any_threads() -> str | None:
    """Of Python, also those that were started without its threading module; and native ones."""
    known = {thread.ident: thread.native_id for thread in threading.enumerate()}
    nameless = [f"thread {ident}" for ident in sys._current_frames() if ident not in known]
    return others_told([*other_threads(), *nameless, *_strange_native_threads(set(known.values()))])


def have_ones_own() -> None:
    """In a worker, first of all: a place of its own in each file that is only read, connections of its own to managers.

    Those that share them read what another one has looked for.
    """
    for fd in _opened():
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(fd).st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                mine = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
                os.lseek(mine, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
                os.dup2(mine, fd, inheritable=os.get_inheritable(fd))
                os.close(mine)
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._run_after_forkers()  # as in its own processes


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
    return f"this process holds {held / (1 << 20):,.0f} MB, which a copy of it would keep"


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


def _drop_connections(keep: set[int]) -> None:
    """Else a port would stay taken, and whoever is at the other end not see that the trainer has closed its own.

    Their numbers stay taken: somebody here may think that they are his, and close them.
    """
    ours, theirs = socket.socketpair()
    theirs.close()
    usual = socket.getdefaulttimeout()
    socket.setdefaulttimeout(None)  # else those that are looked at would not block any more, in the trainer neither
    with ours:
        for fd in _opened().keys() - keep - {1, 2, ours.fileno()}:
            if _is_connection(fd):
                os.dup2(ours.fileno(), fd, inheritable=False)
    socket.setdefaulttimeout(usual)


def _is_connection(fd: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as found:
            return found.family in (socket.AF_INET, socket.AF_INET6)
    except OSError:  # closed meanwhile, or of a family that Python does not know
        return False


def _opened() -> dict[int, str]:
    """The descriptors of this process, and what they lead to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - in a copy each object is a page of its own
        with contextlib.suppress(OSError):  # the one that listed the folder
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - as above
    return found
