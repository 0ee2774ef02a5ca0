"""Where and on what a figure was made: enough to read it later, nothing that names a host or a user."""

from __future__ import annotations

import compileall
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def facts() -> dict[str, str | int | float]:
    """The machine and the versions that matter."""
    return {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": installed("torch"),
        "numpy": installed("numpy"),
        "swift_loader": installed("swift_loader"),
    }


def in_a_line() -> str:
    """What below a table says where it was made."""
    known = facts()
    return f"{known['cores']} cores {known['cpu']}, Python {known['python']}, torch {known['torch']}"


def make_ready(tree: Path = ROOT) -> None:
    """Write the bytecode of a checkout, as pip does for what it installs: else starts are measured that compile."""
    for package in ("swift_loader", "benchmarks"):
        compileall.compile_dir(tree / package, quiet=1)


def processor() -> str:
    """The processor's name as the kernel says it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def installed(name: str) -> str:
    """A package's version, or that it is not installed (then it is imported from the checkout)."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def commit() -> str:
    """The commit that was measured; a `+` when what was measured differs from it."""
    head = git("rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    changed = git("status", "--porcelain", "--", "swift_loader", "benchmarks", ":!benchmarks/results")
    return head + ("+" if changed else "")


def git(*arguments: str) -> str:
    """What git says, or nothing when it fails (an installed copy, no commit yet)."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
