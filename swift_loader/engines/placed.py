"""What is said between who keeps a server of this job on another host, and that server's process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from swift_loader.errors import FailureReport
from swift_loader.travel.heritage import Heritage
from swift_loader.travel.script_settings import ScriptSettings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of the trainer's process holds on every host."""

    path: list[str]
    """Where it looks for modules, behind where the other host does."""
    folder: str
    """Relative paths begin there, where it is there."""
    hash_seed: str | None
    script: ScriptSettings

    @classmethod
    def here(cls) -> Self:
        """Of this process."""
        found = Heritage.of_trainer()
        return cls(found.path, found.folder, found.environment.get("PYTHONHASHSEED"), found.script)


@dataclass(frozen=True, slots=True)
class Placing:
    """What a server is told. With it comes the payload, which holds the recipe."""

    ports: tuple[int, int] | None
    """Where it may listen; None: at any."""
    width: int
    """So many workers."""
    key: str
    """The job's: private key and certificate."""
    loader: str
    """What the consumer calls it."""
    surroundings: Surroundings


@dataclass(frozen=True, slots=True)
class Placed:
    """What it answers."""

    addresses: tuple[str, ...] = ()
    """Where it is found: the nearest first."""
    report: FailureReport | None = None
    """Why it is not."""
