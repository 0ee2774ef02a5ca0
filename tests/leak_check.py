"""What a test left behind: processes, threads, descriptors, names in shared memory, files.

`Residue.take()` is a picture of now; `Residue.since(before)` tells what is there that was not. A picture costs less
than a millisecond: processes are listed only if the kernel has made any since the last one (its last process id moved).
Knows nothing of pytest.
"""

from __future__ import annotations

import gc
import itertools
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import NamedTuple

import psutil

from swift_loader.engines.nursery import shared
from tests import warm

#: Only a test that leaves something behind waits for it.
GRACE_S = 10.0
#: Most of what is still there ends by itself in milliseconds; looking for cycles takes longer.
_LOOKS_AT_ONCE = 3
TEMP_PREFIX = "swift-tests-"
SHARED_MEMORY = Path("/dev/shm")

_PERMITTED_COMMANDS = (
    # Both serve the whole interpreter and leave with it.
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
)

_PERMITTED_FILES = (
    "pymp-",  # multiprocessing's, removed when the interpreter ends
    "torchinductor_",
    "torchelastic_",
    "pytorch-errorfile-",  # torch's, never removed
)


@dataclass(frozen=True)
class Residue:
    """All that a test may leave behind, at one moment."""

    last_pid: str
    processes: frozenset[tuple[int, int]]
    threads: frozenset[int]
    descriptors: frozenset[tuple[int, str]]
    shared_names: frozenset[str]
    temp_files: frozenset[str]

    @classmethod
    def take(cls, before: Residue | None = None) -> Residue:
        """A picture of now; with ``before``, its processes are taken over if none was started since."""
        last_pid = _last_pid()
        return cls(
            last_pid=last_pid,
            processes=before.processes if before and before.last_pid == last_pid else _processes(),
            threads=frozenset(t.ident or 0 for t in threading.enumerate() if t.name.startswith("swift-")),
            descriptors=_descriptors(),
            shared_names=frozenset(os.listdir(SHARED_MEMORY)) if SHARED_MEMORY.is_dir() else frozenset(),
            temp_files=frozenset(os.listdir(tempfile.gettempdir())),
        )

    def since(self, before: Residue) -> list[str]:
        """One line for each thing that is here and was not there ``before``."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        own = _descriptors_of_multiprocessing() | _descriptors_of_servers()
        servers = shared.pids | warm.server.pids
        processes = sorted(self.processes - before.processes)
        return [
            *(f"process {_described(pid)}" for pid, _ in processes if pid not in servers),
            *(f"thread {names.get(ident, ident)}" for ident in sorted(self.threads - before.threads)),
            *(f"descriptor {fd} -> {to}" for fd, to in sorted(self.descriptors - before.descriptors) if fd not in own),
            *(f"{SHARED_MEMORY}/{name}" for name in sorted(_not_others(self.shared_names - before.shared_names))),
            *(
                f"{tempfile.gettempdir()}/{name}"
                for name in sorted(self.temp_files - before.temp_files)
                if not name.startswith(_PERMITTED_FILES)
            ),
        ]


def leaks_since(before: Residue, grace_s: float = GRACE_S) -> list[str]:
    """What is left of the time after ``before`` once things that are on their way out have had ``grace_s`` to leave."""
    after = Residue.take(before)
    if not (leaks := after.since(before)):
        return []
    deadline = time.monotonic() + grace_s
    pause = threading.Event()
    looks = itertools.count()
    while leaks and (rest_s := deadline - time.monotonic()) > 0:
        if (look := next(looks)) >= _LOOKS_AT_ONCE:
            gc.collect()  # what hangs in a cycle leaves only now
        pause.wait(min(0.01 * 1.3 ** max(0, look - _LOOKS_AT_ONCE), 0.2, rest_s))
        after = Residue.take()
        leaks = after.since(before)
    return leaks


def _last_pid() -> str:
    return Path("/proc/loadavg").read_text().split()[-1]


class _Seen(NamedTuple):
    """What the kernel says of a process in one line."""

    state: str
    parent: int
    began: int


_strangers: dict[int, int] = {}
"""Processes that are not ours and never will be, each with the inode of its folder, by which another of the same number
is told apart: to read of all of them again, before and after each test, would take longer than most tests."""


def _processes() -> frozenset[tuple[int, int]]:
    """Our descendants, and our orphans: what lost its parent while we were not looking is still ours."""
    me, ours = os.getpid(), set()
    there = {pid: inode for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (inode := _inode(pid))}
    for gone in _strangers.keys() - there.keys():
        del _strangers[gone]
    known = _strangers.items() & there.items()
    running = {pid: seen for pid, _ in there.items() - known if (seen := _seen(pid))}
    for pid, seen in running.items():
        if pid == me:
            continue
        if not _descends(pid, me, running) and not _is_orphan_of_ours(pid):
            _strangers[pid] = there[pid]
        elif _counts(pid, seen):
            ours.add((pid, seen.began))
    return frozenset(ours)


def _inode(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_ino
    except OSError:
        return 0  # gone


def _seen(pid: int) -> _Seen | None:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)  # not by a file object: this is most of what a picture costs
    except OSError:
        return None  # gone
    try:
        words = os.read(fd, 4096).rpartition(b")")[2].split()
    except OSError:
        return None
    finally:
        os.close(fd)
    return _Seen(words[0].decode(), int(words[1]), int(words[19]))


def _counts(pid: int, seen: _Seen) -> bool:
    if seen.state == "Z":
        return seen.parent == os.getpid()  # of the dead, only those that we ourselves should have reaped
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return False  # gone
    return not any(permitted in command for permitted in _PERMITTED_COMMANDS)


def _descends(pid: int, ancestor: int, running: dict[int, _Seen]) -> bool:
    while pid in running and pid not in (0, ancestor):
        pid = running[pid].parent
    return pid == ancestor


def _is_orphan_of_ours(pid: int) -> bool:
    """Whether a process carries our environment: a command has our TMPDIR, a fork the whole of it."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # gone, or somebody else's
    mark = f"TMPDIR={tempfile.gettempdir()}\0".encode()
    if TEMP_PREFIX.encode() in mark and mark in environment:
        return True
    return environment == Path("/proc/self/environ").read_bytes() and _session(pid) == os.getsid(0)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _not_others(names: frozenset[str]) -> set[str]:
    """The names in shared memory that nobody else on this machine has mapped."""
    inodes = {}
    for name in names:
        try:
            inodes[name] = str((SHARED_MEMORY / name).stat().st_ino)
        except FileNotFoundError:
            continue
    taken: set[str] = set()
    for pid in psutil.pids() if inodes else []:
        taken |= _mapped_shared_inodes(pid) if pid != os.getpid() else set()
    return {name for name, inode in inodes.items() if inode not in taken}


def _mapped_shared_inodes(pid: int) -> set[str]:
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return set()  # gone, or not for us to see
    # By inode, since a semaphore is mapped under the name that it had while it was made.
    return {line.split()[4] for line in maps.splitlines() if f"{SHARED_MEMORY}/" in line}


def _described(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        status = process.status()
        return f"{pid} ({status}): {process.name() if status == 'zombie' else ' '.join(process.cmdline())}"
    except psutil.NoSuchProcess:
        return f"{pid} (just gone)"


def _descriptors() -> frozenset[tuple[int, str]]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add((int(fd), os.readlink(f"/proc/self/fd/{fd}")))
        except FileNotFoundError:
            continue  # the one that listed the folder
    return frozenset(found)


def _descriptors_of_servers() -> set[int]:
    """Of the servers that all loaders, and all scripts, of this process share, and that live as long as it does."""
    return shared.fds | warm.server.fds


def _descriptors_of_multiprocessing() -> set[int | None]:
    return {
        resource_tracker._resource_tracker._fd,
        forkserver._forkserver._forkserver_alive_fd,
    }
