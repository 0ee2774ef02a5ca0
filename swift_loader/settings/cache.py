"""What a user says of a cache: where samples are kept, and for how long. Knows nothing of how it is done."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

from swift_loader.errors import ConfigError

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
        _one_of("refresh", self.refresh, Refresh)
        _one_of("medium", self.medium, Medium)
        if self.prefix is not None and not _is_path(self.prefix):
            raise _wrong("prefix", "a path", self.prefix)
        if self.medium == "disk" and self.prefix is None:
            raise ConfigError("cache_setting needs a prefix: the path that the names of the cache's files begin with")
        if not isinstance(self.version, str):
            raise _wrong("version", "a text", self.version)
        object.__setattr__(self, "prefix", None if self.prefix is None else str(self.prefix))
        object.__setattr__(self, "update_frequency", _frequency(self.update_frequency))
        object.__setattr__(self, "nbytes", _nbytes(self.nbytes))
        if self.medium == "memory" and self.nbytes is None:
            raise ConfigError("cache_setting with medium='memory' needs nbytes: how much memory samples may take")

    @classmethod
    def parse(cls, given: object) -> CacheSetting | None:
        """The setting of what a user gave: nothing, a dict or a `CacheSetting`."""
        if given is None:
            return None
        if isinstance(given, Mapping):
            _refuse_unknown(given)
            given = cls(**given)
        if not isinstance(given, cls):
            raise ConfigError(f"cache_setting must be a dict or a CacheSetting, not a {type(given).__name__}")
        if find_spec("xxhash") is None:
            raise ConfigError(
                "a cache checks what it reads with xxhash, which is not installed: pip install 'swift-loader[cache]'"
            )
        return given


def _refuse_unknown(given: Mapping[Any, Any]) -> None:
    known = [field.name for field in fields(CacheSetting)]
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f": its keys are {', '.join(known)}"
            raise ConfigError(f"cache_setting has no key {key!r}{hint}")


def _one_of(name: str, value: object, kind: Any) -> None:
    allowed = get_args(kind)
    if not isinstance(value, str) or value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"cache_setting's {name} must be {' or '.join(map(repr, allowed))}, not {value!r}{hint}")


def _frequency(value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and value == math.inf:
        return math.inf
    if not is_number or not value >= 2 or value != int(value):
        raise _wrong("update_frequency", "a whole number of epochs from 2 on, or math.inf for never", value)
    return int(value)


def _nbytes(value: Any) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise _wrong("nbytes", "a whole number of bytes", value) from None
    if number < _LEAST_NBYTES:
        raise _wrong("nbytes", f"at least {_LEAST_NBYTES:,} bytes", value)
    return number


def _is_path(value: object) -> bool:
    return isinstance(value, str | Path) and bool(str(value))


def _wrong(name: str, wanted: str, value: object) -> ConfigError:
    text = repr(value)
    return ConfigError(f"cache_setting's {name} must be {wanted}, not {text if len(text) <= 60 else text[:57] + '...'}")
