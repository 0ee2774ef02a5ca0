"""What a user says of the log: where it goes, and from which level on. Knows nothing of how it is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from swift_loader.errors import ConfigError
from swift_loader.settings import checks

LogLevel = Literal["TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR", "CRITICAL"]

#: As loguru and Python's logging number them, and other names that logging knows.
_LEVELS: dict[object, LogLevel] = {
    **dict(zip((5, 10, 20, 25, 30, 40, 50), get_args(LogLevel), strict=True)),
    "WARN": "WARNING",
    "FATAL": "CRITICAL",
}


@dataclass(frozen=True, slots=True)
class LogSetting:
    """Where the log goes."""

    path: str | None
    stdout: bool
    level: LogLevel

    @classmethod
    def parse(cls, logger: object) -> Self | None:
        """Reads ``logger=``.

        Raises:
            ConfigError: if something is wrong with it.
        """
        if logger is None:
            return None
        if isinstance(logger, str | Path):
            return cls(path=str(logger), stdout=False, level="DEBUG")
        if not isinstance(logger, dict):
            raise checks.wrong("logger", "a file prefix or a dict", logger)
        checks.refuse_keys("logger", logger, ("path", "stdout", "level"))
        path = logger.get("path")
        return cls(
            path=None if path is None else checks.path("logger['path']", path),
            stdout=checks.flag("logger['stdout']", logger.get("stdout", False)),
            level=_level(logger.get("level")),
        )


def _level(given: object) -> LogLevel:
    level = given.upper() if isinstance(given, str) else given
    if level is None or level == "":
        return "DEBUG"
    for known in get_args(LogLevel):
        if level == known:
            return known  # type: ignore[no-any-return] # what a Literal lists
    if isinstance(level, str | int) and level in _LEVELS:
        return _LEVELS[level]
    raise ConfigError(
        f"logger['level'] must be one of {', '.join(get_args(LogLevel))}, or a number of Python's logging such as "
        f"logging.INFO, not {given!r}"
    )
