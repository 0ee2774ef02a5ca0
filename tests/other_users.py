"""What runs as another user, in surroundings of its own: a mount namespace in which every user can read this Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from tests.watching import ROOT, warm_python

#: A folder that every Linux has for this, and that nothing of ours is in.
_STAGE = Path("/mnt")
_TMPFS = "mount -t tmpfs -o mode=755 tmpfs"


def run_apart(script: str, mounts: str = "true", seal: str = "true", **env: str) -> str:
    """What a script prints that root runs after ``mounts``, shell commands that nobody else sees the effect of.

    What is mounted may hide this Python, which is then put back in its place; ``seal`` are commands after that. The
    script must end well and say nothing on standard error.
    """
    if os.geteuid() != 0:
        pytest.skip("other users and mount namespaces take root")
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here (unshare -m)")
    trees = dict(enumerate(dict.fromkeys([Path(sys.base_prefix), Path(sys.prefix), ROOT])))
    command = [
        f"{_TMPFS} {_STAGE}",
        *(f"mkdir {_STAGE}/{n} && mount --bind {quote(str(tree))} {_STAGE}/{n}" for n, tree in trees.items()),
        *(f"{_TMPFS} {quote(folder)}" for folder in dict.fromkeys(filter(None, map(_closed_above, trees.values())))),
        mounts,
        *(f"mkdir -p {quote(str(tree))} && mount --bind {_STAGE}/{n} {quote(str(tree))}" for n, tree in trees.items()),
        seal,
    ]
    return warm_python("-c", script, folder=Path("/"), mounts=" && ".join(command), **env)


def _closed_above(tree: Path) -> str:
    """The uppermost folder on the way to ``tree`` that only its owner may pass, if there is one."""
    return next((str(folder) for folder in [*reversed(tree.parents), tree] if not folder.stat().st_mode & 1), "")
