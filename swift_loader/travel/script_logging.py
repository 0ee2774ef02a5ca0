"""What a script has set of Python's logging, in plain values: levels, and the root's handlers that another can have."""

from __future__ import annotations

import sys
from typing import Any

#: Of loggers with a level of their own so many are told.
_MOST = 1_000
_STREAMS = ("stderr", "stdout")


def read(logging: Any) -> dict[str, Any]:
    """What is set."""
    root, named = logging.root, logging.root.manager.loggerDict
    loggers = ((name, one) for name, one in list(named.items()) if isinstance(one, logging.Logger))
    levels = [(name, one.level, one.disabled) for name, one in loggers if one.level or one.disabled]
    return {
        "level": root.level,
        "disable": root.manager.disable,
        "levels": levels[:_MOST],
        "handlers": [told for handler in root.handlers if (told := _told(logging, handler)) is not None],
    }


def write(logging: Any, told: dict[str, Any]) -> None:
    """Sets it, in place of what the root has here."""
    root = logging.root
    root.setLevel(told["level"])
    logging.disable(told["disable"])
    for name, level, disabled in told["levels"]:
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.disabled = disabled
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for stream, file, level, form in told["handlers"]:
        handler = logging.StreamHandler(getattr(sys, stream)) if stream else logging.FileHandler(*file, delay=True)
        handler.setLevel(level)
        handler.setFormatter(None if form is None else logging.Formatter(form[0], form[1], form[2]))
        root.addHandler(handler)


def _told(logging: Any, handler: Any) -> tuple[Any, ...] | None:
    """One that writes to a standard stream, or adds to a file; None for others, which nobody else can have."""
    form = _form(logging, handler.formatter)
    if type(handler) is logging.FileHandler and handler.mode == "a":
        return None, (handler.baseFilename, "a", handler.encoding), handler.level, form
    if type(handler) is logging.StreamHandler:
        for stream in _STREAMS:
            if handler.stream in (getattr(sys, stream), getattr(sys, f"__{stream}__")):
                return stream, None, handler.level, form
    return None


def _form(logging: Any, formatter: Any) -> tuple[Any, ...] | None:
    if type(formatter) is not logging.Formatter:
        return None
    styles = {kind: style for style, (kind, _) in logging._STYLES.items()}
    return formatter._fmt, formatter.datefmt, styles[type(formatter._style)]
