"""A disk that fails when it is told to: an ext4 that is shut down, as the kernel does it itself where a disk fails."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

_EXT4_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_WRITING_ANYTHING = struct.pack("I", 2)


def mounting(folder: Path, place: Path, megabytes: int = 32) -> str:
    """Commands that mount such a disk, of that size, at ``place``, which lies in ``folder``; both are made."""
    below = folder / "below"
    for each in (below, place):
        each.mkdir()
    if shutil.which("mkfs.ext4") is None or not any(Path("/dev").glob("loop[0-9]*")):
        pytest.skip("a disk that fails is made with mkfs.ext4 and a loop device: one of them is not here")
    mounts = (
        f"mount -t tmpfs -o size={megabytes + 8}m tmpfs {below} && truncate -s {megabytes}m {below}/image && "
        f"mkfs.ext4 -q {below}/image && "
        f"mount -o loop,sync {below}/image {place}"
    )
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts], check=False, capture_output=True, timeout=60).returncode:
        pytest.skip("no loop device can be mounted here")
    return mounts


def shut_down(place: str) -> None:
    """From now on that disk answers EIO."""
    folder = os.open(place, os.O_RDONLY)
    with contextlib.suppress(OSError):  # it is shut down already
        fcntl.ioctl(folder, _EXT4_IOC_SHUTDOWN, _WITHOUT_WRITING_ANYTHING)
    os.close(folder)
