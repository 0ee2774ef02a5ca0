"""Memory control groups for tests, of either version, made below the one that the tests run in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swift_loader.host import cgroup
from tests.watching import until


@contextmanager
def memory_group(name: str) -> Iterator[Path]:
    """A group of its own, without a limit; skips the test where none can be made."""
    own = cgroup.folders("memory")
    if not own or os.geteuid() != 0:
        pytest.skip("no memory control group can be made here: it takes root, and /sys/fs/cgroup mounted")
    group = own[0] / f"swift-test-{name}-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    try:
        if not limit_file(group).exists():
            pytest.skip("the memory controller is not handed down to control groups that are made here")
        yield group
    finally:
        until(lambda: _removed(group), f"the end of {group}")


def limit_file(group: Path) -> Path:
    """Where the limit is written."""
    first = group / "memory.limit_in_bytes"
    return first if first.exists() else group / "memory.max"


def kills(group: Path) -> int:
    """How many processes of the group the kernel has killed for want of memory."""
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            counts = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(counts["oom_kill"])
    raise AssertionError("the group does not tell")


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:  # its last process is on its way out
        return False
    return True
