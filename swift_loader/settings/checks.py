"""One reader for each sort of value that a user gives: a whole number, a flag, a choice, a path, a dict of keys.

Each gives back what it read, and refuses with one sentence: the name, what is wanted, what came. Knows no setting.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Collection, Iterable
from numbers import Real
from pathlib import Path
from typing import Any, get_args

from swift_loader.errors import ConfigError

_LONG = 60


def whole_number(value: Any) -> int | None:
    """The whole number that ``value`` is, one of numpy's too; None for floats, text and bool."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def is_number(value: object) -> bool:
    """Whether it is a number, one of numpy's too, and no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def whole(name: str, value: object, *, least: int, of: str = "") -> int:
    """A whole number; ``of`` says of what."""
    found = whole_number(value)
    if found is None or found < least:
        raise wrong(name, f"a whole number{of and f' of {of}'} from {least:,} on", value)
    return found


def number(name: str, value: Any, *, least: float, of: str = "") -> float:
    """A finite number from ``least`` on; ``of`` says of what."""
    if not is_number(value) or not least <= value < math.inf:
        raise wrong(name, f"a number{of and f' of {of}'} from {least:g} on", value)
    return float(value)


def seconds(name: str, value: Any) -> float:
    """A time; it may be infinite."""
    if not is_number(value) or not value > 0:
        raise wrong(name, "a number of seconds above 0", value)
    return float(value)


def flag(name: str, value: object) -> bool:
    if value is True or value is False:
        return value
    raise wrong(name, "True or False", value)


def choice(name: str, value: object, kind: Any) -> Any:
    """One of the texts that the Literal ``kind`` lists."""
    allowed = get_args(kind)
    if isinstance(value, str) and value in allowed:
        return value
    raise ConfigError(
        f"{name} must be {' or '.join(map(repr, allowed))}, not {described(value)}{meant(value, allowed)}"
    )


def function(name: str, value: object) -> Callable[..., Any]:
    if callable(value):
        return value
    raise wrong(name, "callable", value)


def path(name: str, value: object) -> str:
    if isinstance(value, str | Path) and str(value):
        return str(value)
    raise wrong(name, "a path", value)


def refuse_keys(whose: str, given: Iterable[object], known: Collection[str]) -> None:
    """Raises `ConfigError` for the first key that ``known`` does not have."""
    for key in given:
        if key not in known:
            hint = meant(key, known) or f": its keys are {', '.join(known)}"
            raise ConfigError(f"{whose} has no key {key!r}{hint}")


def meant(word: object, known: Iterable[str]) -> str:
    """What was probably meant, to be put behind a refusal; nothing where nothing known is near."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def wrong(name: str, wanted: str, value: object) -> ConfigError:
    """The error for a value that is not what is wanted."""
    return ConfigError(f"{name} must be {wanted}, not {described(value)}")


def described(value: object) -> str:
    """A value as it is written, cut to what fits a sentence, and its type where that does not show."""
    text = repr(value)
    short = text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."
    return short if isinstance(value, str | int | float | None) else f"{short} ({type(value).__name__})"
