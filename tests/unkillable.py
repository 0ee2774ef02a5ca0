"""Two ways to a process that does not die of a SIGKILL: a file system that never answers, and a frozen control group.

Both need root. Knows nothing of the loader.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

_LOOKUP, _GETATTR, _OPEN, _READ, _INIT, _OPENDIR = 1, 3, 14, 15, 26, 27
_NAME = b"file"
_ENOSYS = 38
_DIRECT_IO = 1
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)
FREEZER = Path("/sys/fs/cgroup/freezer")


@contextlib.contextmanager
def silent_file(folder: Path) -> Iterator[Path]:
    """A file of a FUSE file system. Whoever reads it waits in the kernel, and goes when this block ends.

    A request that the file system has taken is waited for without a way out, whatever signals come meanwhile.
    """
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40755,user_id=0,group_id=0".encode()
    if _libc.mount(b"silent", os.fsencode(folder), b"fuse", 0, options) != 0:
        os.close(fd)
        raise OSError(ctypes.get_errno(), "cannot mount a FUSE file system")
    enough = os.eventfd(0)
    thread = threading.Thread(target=_serve, args=(fd, enough), name="silent")
    thread.start()
    try:
        yield folder / _NAME.decode()
    finally:
        # Detached, so that nobody comes in any more; with the last descriptor, all who wait get an error.
        _libc.umount2(os.fsencode(folder), _MNT_DETACH)
        os.eventfd_write(enough, 1)
        thread.join(10)
        os.close(enough)
        os.close(fd)


def _serve(fd: int, enough: int) -> None:
    """Answers all but reads, in the bare protocol of the kernel."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(enough, select.POLLIN)
    with contextlib.suppress(OSError):
        while enough not in dict(poll.poll(60_000)):
            request = os.read(fd, 1 << 17)
            kind, unique, node = struct.unpack_from("<4xIQQ", request)
            if (answer := _answer(kind, node, request[40:])) is not None:
                error, body = answer
                os.write(fd, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)


def _answer(kind: int, node: int, body: bytes) -> tuple[int, bytes] | None:
    if kind == _READ:
        return None
    if kind == _INIT:
        return 0, struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 16, 0, 16, 12, 1 << 16, 1, 1, 0, 0, *[0] * 7)
    if kind == _LOOKUP and body.rstrip(b"\0") == _NAME:
        return 0, struct.pack("<QQQQII", 2, 0, 1, 1, 0, 0) + _attributes(2)
    if kind == _GETATTR:
        return 0, struct.pack("<QII", 1, 0, 0) + _attributes(node)
    if kind in (_OPEN, _OPENDIR):
        return 0, struct.pack("<QII", 0, _DIRECT_IO, 0)
    return (2 if kind == _LOOKUP else _ENOSYS), b""


def _attributes(node: int) -> bytes:
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


@contextlib.contextmanager
def frozen_group(name: str) -> Iterator[Path]:
    """A control group whose processes stand still, and die of no signal, from `freeze` to the end of this block."""
    group = FREEZER / name
    group.mkdir()
    try:
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (FREEZER / "cgroup.procs").write_text(pid)
        _remove(group)


def freeze(group: Path, pid: int) -> None:
    """Puts a process into the group, and freezes it."""
    (group / "cgroup.procs").write_text(str(pid))
    (group / "freezer.state").write_text("FROZEN")


def _remove(group: Path) -> None:
    """Those who were killed while they were frozen go now."""
    for _ in range(1000):
        try:
            group.rmdir()
            return
        except OSError:
            threading.Event().wait(0.005)
    raise AssertionError(f"{group} is not empty")
