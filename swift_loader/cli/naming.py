"""What commands are told by name: a dataset's class, a function, arguments as JSON; and errors, as they are shown."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from swift_loader.errors import ConfigError, RemoteTraceback, SwiftLoaderError


def look_here() -> None:
    """Has modules of the current folder be found, as `python -m` would."""
    sys.path.insert(0, str(Path.cwd()))


def named(name: str, what: str = "the dataset is named as package.module:Dataset") -> Any:
    """What stands under ``package.module:Name``.

    Raises:
        ConfigError: if there is nothing.
    """
    module, _, path = name.partition(":")
    if not path:
        raise ConfigError(f"{what}, not {name!r}")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise ConfigError(f"there is no module {error.name!r} here or in the environment") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{module} has no {path}")
        found = getattr(found, part)
    return found


def arguments_of(text: str, option: str = "--kwargs") -> dict[str, Any]:
    """Keyword arguments, written as JSON.

    Raises:
        ConfigError: if they are not.
    """
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f'{option} takes JSON, such as \'{{"folder": "train"}}\': {error}') from None
    if not isinstance(kwargs, dict):
        raise ConfigError(f"{option} takes an object of JSON, not {text}")
    return kwargs


def show_error(command: str, error: BaseException) -> None:
    """The error as the loader tells it, below the traceback of the process in which it happened.

    Without the way to make the batch again: this command's loader is nobody else's.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, RemoteTraceback):
        cause = cause.__cause__
    if cause is not None:
        print(cause.text.rstrip(), file=sys.stderr)
    text = error.args[0] if isinstance(error, SwiftLoaderError) and error.args else error
    print(f"swift-loader {command}: {type(error).__name__}: {text}", file=sys.stderr)


def positive(word: str) -> int:
    """A count on the command line."""
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number
