"""What `swift-loader doctor` looks at: the facts of this machine, gathered in one place. Judges nothing.

What the kernel can do is tried, not concluded from its version: containers and sandboxes take things away.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import mmap
import os
import platform
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import swift_loader
from swift_loader.errors import ConfigError
from swift_loader.host import cgroup, cores, procfs
from swift_loader.host.cores import THREAD_CAPS
from swift_loader.host.memfile import memory_file
from swift_loader.host.memory import free_nbytes
from swift_loader.wire.slot import MADV_POPULATE_WRITE

_UNLIMITED = -1
_PROBE_NBYTES = 1 << 20
_STANDARD_ERROR = 2


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One machine, as this process may use it. Limits of -1 are none; sizes are bytes."""

    versions: dict[str, str] = field(default_factory=dict)
    """Of Python and of packages; those that are not there are left out."""
    kernel: str = ""
    memfd_refusal: str = ""
    """Why files in memory cannot be made, if they cannot."""
    seals: bool = True
    populates: bool = True
    pidfd_refusal: str = ""
    lifeline_refusal: str = ""
    """Why the kernel cannot be asked to kill a worker with its trainer, if it cannot."""
    proc_is_mounted: bool = True
    ptrace_scope: int | None = None
    memory_free: int = 16 << 30
    """What may be taken here: of the host, or of the control group."""
    memory_total: int = 32 << 30
    memory_is_limited: bool = False
    """By a control group."""
    shared_memory: int = 0
    """The size of /dev/shm; 0 if there is none."""
    files: tuple[int, int] = (1024, 1 << 20)
    """Soft and hard limit."""
    locked: tuple[int, int] = (_UNLIMITED, _UNLIMITED)
    processes: tuple[int, int] = (_UNLIMITED, _UNLIMITED)
    pids_left: int | None = None
    """Processes that the control group still allows."""
    cores: int = 8
    cores_allowed: int = 8
    """By the affinity."""
    core_quota: float | None = None
    thread_variables: dict[str, str] = field(default_factory=dict)
    numa_nodes: int = 1
    driver: bool = False
    """Whether an NVIDIA driver is loaded."""
    gpus: int = 0
    """That torch sees."""
    torch_cuda: str | None = None
    """The version that torch was built for."""
    visible_devices: str | None = None
    temp_folder: str = "/tmp"  # noqa: S108 - an example
    temp_free: int = 10 << 30
    temp_refusal: str = ""
    orphans: tuple[int, ...] = ()
    """Workers and fork servers of this user whose trainer is gone."""


def gather() -> Facts:
    """The facts of this machine."""
    return Facts(
        versions=_versions(),
        kernel=platform.release(),
        proc_is_mounted=Path("/proc/self/fd").is_dir(),
        ptrace_scope=cgroup.number(Path("/proc/sys/kernel/yama/ptrace_scope")),
        files=_limits(resource.RLIMIT_NOFILE),
        locked=_limits(resource.RLIMIT_MEMLOCK),
        processes=_limits(resource.RLIMIT_NPROC),
        thread_variables={name: os.environ[name] for name in THREAD_CAPS if name in os.environ},
        numa_nodes=max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))),
        orphans=_orphans(),
        **_kernel_features(),
        **_memory(),
        **_cores(),
        **_gpus(),
        **_temporary(),
    )


def _versions() -> dict[str, str]:
    found = {"swift_loader": swift_loader.__version__, "Python": platform.python_version()}
    for name in ("torch", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _kernel_features() -> dict[str, Any]:
    return {
        **_memory_file_features(),
        "pidfd_refusal": _refusal(lambda: os.close(os.pidfd_open(os.getpid()))),
        "lifeline_refusal": _refusal(_try_lifeline),
    }


def _memory_file_features() -> dict[str, Any]:
    try:
        fd = memory_file("swift-doctor")
    except (ConfigError, OSError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        return {"memfd_refusal": getattr(cause, "strerror", None) or str(cause)}
    try:
        os.ftruncate(fd, _PROBE_NBYTES)
        seals = not _refusal(lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK))
        with mmap.mmap(fd, _PROBE_NBYTES) as mapping:
            populates = not _refusal(lambda: mapping.madvise(MADV_POPULATE_WRITE))
    finally:
        os.close(fd)
    return {"seals": seals, "populates": populates}


def _try_lifeline() -> None:
    reads, writes = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(reads, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(reads, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(reads, fcntl.F_SETFL, os.O_NONBLOCK)
    finally:
        os.close(reads)
        os.close(writes)


def _refusal(action: Callable[[], object]) -> str:
    """Why the system refuses ``action``; nothing if it does not."""
    try:
        action()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _memory() -> dict[str, Any]:
    folder = Path("/dev/shm")  # noqa: S108 - only its size
    return {
        "memory_free": free_nbytes(),
        "memory_total": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memory_is_limited": cgroup.free_memory() is not None,
        "shared_memory": shutil.disk_usage(folder).total if folder.is_dir() else 0,
    }


def _limits(which: int) -> tuple[int, int]:
    soft, hard = resource.getrlimit(which)
    return soft, hard


def _cores() -> dict[str, Any]:
    left = []
    for group in cgroup.folders("pids"):
        most, now = cgroup.number(group / "pids.max"), cgroup.number(group / "pids.current")
        if most is not None and now is not None:
            left.append(most - now)
    return {
        "cores": os.cpu_count() or 1,
        "cores_allowed": len(cores.allowed()),
        "core_quota": cgroup.core_quota(),
        "pids_left": min(left, default=None),
    }


def _gpus() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "driver": Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists(),
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    try:
        import torch
    except ImportError:
        return facts
    return {**facts, "gpus": torch.cuda.device_count(), "torch_cuda": torch.version.cuda}


def _temporary() -> dict[str, Any]:
    try:
        folder = tempfile.gettempdir()
        return {"temp_folder": folder, "temp_free": shutil.disk_usage(folder).free}
    except OSError as error:
        return {"temp_refusal": error.strerror or str(error)}


def _orphans() -> tuple[int, ...]:
    """Ours whose lifeline nobody else holds: a trainer has its other end open, whatever it is called."""
    ours: dict[int, set[str]] = {}
    held: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            seen = procfs.Stat.of(int(folder.name))
            pipes = {link.name: str(link.readlink()) for link in (folder / "fd").iterdir()}
            owner = folder.stat().st_uid
        except OSError:  # it has just gone, or is somebody else's
            continue
        if seen is None:
            continue
        if not seen.name.startswith(("swift-worker", "swift-zygote")):
            held.update(pipes.values())
        elif not seen.has_ended and owner == os.getuid():  # else it is yet to be waited for
            ours[int(folder.name)] = {
                pipe for fd, pipe in pipes.items() if int(fd) > _STANDARD_ERROR and pipe.startswith("pipe:")
            }
    return tuple(sorted(pid for pid, pipes in ours.items() if pipes and held.isdisjoint(pipes)))
