"""What a user says of a cache: where samples are kept, and for how long. Knows nothing of how it is done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from swift_loader.errors import ConfigError
from swift_loader.settings import checks

Refresh = Literal["all", "spread"]
Medium = Literal["disk", "memory"]

#: Room for fewer bytes is not worth its book-keeping.
_LEAST_NBYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class CacheSetting:
    """Where samples are kept, and for how long.

    Args:
        prefix: The files are ``{prefix}.index``, ``{prefix}.data`` and ``{prefix}.lock``. In memory it is only a name:
            loaders with the same name and the same dataset share what is kept.
        update_frequency: Samples are made anew every so many epochs, at least 2; ``math.inf`` for never.
        refresh: ``"all"`` makes all of them anew in the same epoch, ``"spread"`` an equal part of them in each.
        medium: ``"disk"``, or ``"memory"`` that all consumers and workers of a host share.
        nbytes: The most that is kept; must be given for ``"memory"``.
        version: A text of yours that says which dataset this is: kept samples are made anew where it changes.

    Raises:
        ConfigError: if something is wrong with it.

    Example:
        >>> from swift_loader import CacheSetting
        >>> CacheSetting("/ssd/cats", update_frequency=5).refresh
        'all'
    """

    prefix: str | Path | None = None
    update_frequency: float = math.inf
    refresh: Refresh = "all"
    medium: Medium = "disk"
    nbytes: int | None = None
    version: str = ""

    def __post_init__(self) -> None:
        checks.choice("cache_setting's refresh", self.refresh, Refresh)
        checks.choice("cache_setting's medium", self.medium, Medium)
        if self.prefix is not None:
            object.__setattr__(self, "prefix", checks.path("cache_setting's prefix", self.prefix))
        elif self.medium == "disk":
            raise ConfigError("cache_setting needs a prefix: the path that the names of the cache's files begin with")
        if not isinstance(self.version, str):
            raise checks.wrong("cache_setting's version", "a text", self.version)
        object.__setattr__(self, "update_frequency", _frequency(self.update_frequency))
        if self.nbytes is not None:
            nbytes = checks.whole("cache_setting's nbytes", self.nbytes, least=_LEAST_NBYTES, of="bytes")
            object.__setattr__(self, "nbytes", nbytes)
        if self.medium == "memory" and self.nbytes is None:
            raise ConfigError("cache_setting with medium='memory' needs nbytes: how much memory samples may take")

    @classmethod
    def parse(cls, given: object) -> CacheSetting | None:
        """The setting of what a user gave: nothing, a dict or a `CacheSetting`."""
        if given is None:
            return None
        if isinstance(given, Mapping):
            checks.refuse_keys("cache_setting", given, [field.name for field in fields(cls)])
            given = cls(**given)
        if not isinstance(given, cls):
            raise ConfigError(f"cache_setting must be a dict or a CacheSetting, not a {type(given).__name__}")
        if find_spec("xxhash") is None:
            raise ConfigError(
                "a cache checks what it reads with xxhash, which is not installed: pip install 'swift-loader[cache]'"
            )
        return given


def _frequency(value: Any) -> float:
    if value == math.inf and checks.is_number(value):
        return math.inf
    if not checks.is_number(value) or not value >= 2 or value != int(value):
        wanted = "a whole number of epochs from 2 on, or math.inf for never"
        raise checks.wrong("cache_setting's update_frequency", wanted, value)
    return int(value)
