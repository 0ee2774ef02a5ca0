"""What a user says of rotation: how often samples are used, and where they are kept meanwhile.

Checked here; knows nothing of how it is done.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from swift_loader.errors import ConfigError

RotationMedium = Literal["memory", "disk"]

#: Samples in rotation in memory, unless it is said: the uses of one are two thousand samples apart or more, of eight
#: consumers' two hundred and fifty, and 600 MB hold it for images of 3x224x224 bytes.
DEFAULT_SIZE = 4096
_MOST_USES = 10_000


@dataclass(frozen=True, slots=True)
class RotationSetting:
    """Each sample is made once and used several times in an epoch, which is that much longer.

    Args:
        medium: Where samples are kept between their uses: ``"memory"`` or ``"disk"``.
        rotation: How often each sample is used, at least 2.
        prefix: For ``"disk"``: what the names of the files begin with. They have no name once they are open, so
            nothing is left of them.
        size: The most samples that are kept at the same time, by all consumers of this host together. The more, the
            further apart the uses of a sample are. Must be given for ``"disk"``.

    Raises:
        ConfigError: if something is wrong with it.

    Example:
        >>> from swift_loader import RotationSetting
        >>> RotationSetting("disk", rotation=3, prefix="/ssd/cats", size=1000).rotation
        3
    """

    medium: RotationMedium
    rotation: int
    prefix: str | Path | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.medium not in get_args(RotationMedium):
            raise _wrong("medium", "'memory' or 'disk'", self.medium)
        object.__setattr__(self, "rotation", _whole("rotation", self.rotation, least=2))
        if self.rotation > _MOST_USES:
            raise _wrong("rotation", f"at most {_MOST_USES:,}", self.rotation)
        prefix: Any = self.prefix
        if prefix is not None and (not isinstance(prefix, str | Path) or not str(prefix)):
            raise _wrong("prefix", "a path", prefix)
        object.__setattr__(self, "prefix", None if prefix is None else str(prefix))
        if self.medium == "disk" and self.prefix is None:
            raise ConfigError("rotation_setting with medium='disk' needs a prefix: where the files are, and their name")
        if self.medium == "disk" and self.size is None:
            raise ConfigError(
                "rotation_setting with medium='disk' needs a size: how many samples are kept at the same time"
            )
        size = DEFAULT_SIZE if self.size is None else _whole("size", self.size, least=1)
        object.__setattr__(self, "size", size)

    @classmethod
    def parse(cls, given: object) -> RotationSetting | None:
        """The setting of what a user gave: nothing, a dict or a `RotationSetting`."""
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ConfigError(f"rotation_setting must be a dict or a RotationSetting, not a {type(given).__name__}")
        known = [field.name for field in fields(cls)]
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f": its keys are {', '.join(known)}"
                raise ConfigError(f"rotation_setting has no key {key!r}{hint}")
        if missing := [name for name in ("medium", "rotation") if name not in given]:
            raise ConfigError(
                f"rotation_setting lacks {' and '.join(missing)}: give {{'medium': 'memory', 'rotation': 3}}"
            )
        return cls(**given)

    def room(self, consumer_count: int) -> int:
        """How many samples one of so many consumers may keep."""
        assert self.size is not None
        return max(1, self.size // consumer_count)

    def block(self, consumer_count: int, *, elastic: bool) -> int:
        """How many samples are in rotation at a time: of one consumer, or of all where steps are cut from one order."""
        return self.room(1 if elastic else consumer_count)


def _whole(name: str, value: Any, *, least: int) -> int:
    wanted = f"a whole number from {least} on"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise _wrong(name, wanted, value) from None
    if number < least:
        raise _wrong(name, wanted, value)
    return number


def _wrong(name: str, wanted: str, value: object) -> ConfigError:
    text = repr(value)
    return ConfigError(
        f"rotation_setting's {name} must be {wanted}, not {text if len(text) <= 60 else text[:57] + '...'}"
    )
