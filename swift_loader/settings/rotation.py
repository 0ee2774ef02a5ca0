"""What a user says of rotation: how often samples are used, and where they are kept meanwhile.

Checked here; knows nothing of how it is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from swift_loader.errors import ConfigError
from swift_loader.settings import checks

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
        checks.choice("rotation_setting's medium", self.medium, RotationMedium)
        uses = checks.whole("rotation_setting's rotation", self.rotation, least=2)
        if uses > _MOST_USES:
            raise checks.wrong("rotation_setting's rotation", f"at most {_MOST_USES:,}", uses)
        object.__setattr__(self, "rotation", uses)
        if self.prefix is not None:
            object.__setattr__(self, "prefix", checks.path("rotation_setting's prefix", self.prefix))
        if self.medium == "disk" and self.prefix is None:
            raise ConfigError("rotation_setting with medium='disk' needs a prefix: where the files are, and their name")
        if self.medium == "disk" and self.size is None:
            raise ConfigError(
                "rotation_setting with medium='disk' needs a size: how many samples are kept at the same time"
            )
        size = DEFAULT_SIZE if self.size is None else checks.whole("rotation_setting's size", self.size, least=1)
        object.__setattr__(self, "size", size)

    @classmethod
    def parse(cls, given: object) -> RotationSetting | None:
        """The setting of what a user gave: nothing, a dict or a `RotationSetting`."""
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ConfigError(f"rotation_setting must be a dict or a RotationSetting, not a {type(given).__name__}")
        checks.refuse_keys("rotation_setting", given, [field.name for field in fields(cls)])
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
