"""What runs as another user, in surroundings of its own: a mount namespace in which every user can read this Python."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.watching import ROOT


def run_apart(stage: Path, script: str, mounts: str = "true", **env: str) -> str:
    """What a script prints that root runs after ``mounts``, shell commands that nobody else sees the effect of.

    ``stage`` is an empty folder. The script must end well and say nothing on standard error.
    """
    if os.geteuid() != 0:
        pytest.skip("other users and mount namespaces take root")
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here (unshare -m)")
    command = f'{_readable(stage)} && {mounts} && cd / && exec "$0" -c "$1"'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def _readable(stage: Path) -> str:
    """Shell commands after which every user may come to this Python: it may live in a folder of root's."""
    home = Path(sys.base_prefix)
    closed = [folder for folder in reversed(home.parents) if not folder.stat().st_mode & 1]
    if not closed:
        return "true"
    place, hidden, stand_in = shlex.quote(str(home)), shlex.quote(str(closed[0])), shlex.quote(str(stage))
    return (
        f"mount --bind {place} {stand_in} && mount -t tmpfs -o mode=755 tmpfs {hidden} && mkdir -p {place} && "
        f"mount --bind {stand_in} {place}"
    )
