"""What a process has from the one that started it, as the trainer had it when its loader was started.

Workers of all loaders come from one server, which began with the first of them: what has changed in the trainer since,
the server does not know. So each worker is told, and is as if the trainer itself had started it, then.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from swift_loader.host.cores import THREAD_CAPS
from swift_loader.travel.script_settings import ScriptSettings, gathered

_LIMITS = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]


@dataclass(frozen=True, slots=True)
class Heritage:
    """Travels to a worker in its setup."""

    path: list[str]
    """The import path."""
    folder: str
    """Empty if it was removed: then workers stay where they are started."""
    environment: dict[str, str]
    mask: int
    """What files that are made are not for."""
    limits: dict[int, tuple[int, int]]
    cores: set[int]
    script: ScriptSettings

    @classmethod
    def of_trainer(cls) -> Self:
        """As it is now."""
        folder = _here()
        return cls(
            path=[str(Path(folder, entry)) for entry in sys.path],
            folder=folder,
            environment=dict(os.environ),
            mask=_mask(),
            limits={number: resource.getrlimit(number) for number in _LIMITS},
            cores=os.sched_getaffinity(0),
            script=gathered(),
        )

    def take_over(self, *, is_copy: bool = False) -> None:
        """In a worker, or in what it will be forked from. A copy of the trainer has what the script has set."""
        sys.path[:] = self.path
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        _change_environment({**self.environment, **THREAD_CAPS})
        os.umask(self.mask)
        for number, limits in self.limits.items():
            with contextlib.suppress(OSError, ValueError):  # a hard one may have been raised by whoever may, since
                if resource.getrlimit(number) != limits:
                    resource.setrlimit(number, limits)
        with contextlib.suppress(OSError):
            if os.sched_getaffinity(0) != self.cores:
                os.sched_setaffinity(0, self.cores)
        if not is_copy:
            self.script.apply()


def _change_environment(wanted: dict[str, str]) -> None:
    hash_seed = os.environ.get("PYTHONHASHSEED")
    if hash_seed is not None:  # that by which this process hashes
        wanted["PYTHONHASHSEED"] = hash_seed
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def _mask() -> int:
    """The kernel tells it beside much else; to ask by setting it would show for a moment to other threads."""
    with contextlib.suppress(OSError):
        _, found, rest = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").partition("Umask:")
        if found:
            return int(rest.split(maxsplit=1)[0], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
