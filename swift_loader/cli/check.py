"""`swift-loader check package.module:Dataset`: what will go wrong with a dataset in workers, on a page."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from swift_loader.errors import ConfigError
from swift_loader.testing import check_dataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("dataset", help="package.module:Dataset, a class or a function that makes the dataset")
    parser.add_argument("--kwargs", default="{}", help="its arguments, as JSON (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", default=[], metavar="CHECK", help="these checks alone")
    parser.add_argument("--samples", type=int, default=64, help="looked at closely (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long it may take (default: %(default)s)")
    parser.add_argument("--start-method", choices=("forkserver", "spawn", "fork"), default="forkserver")


def run(arguments: argparse.Namespace) -> int:
    """Prints the page; 1 if there is a problem, 2 if there is no such dataset."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` would
    try:
        report = check_dataset(
            _named(arguments.dataset),
            _kwargs(arguments.kwargs),
            batch_size=arguments.batch_size,
            only=arguments.only,
            samples=arguments.samples,
            seconds=arguments.seconds,
            start_method=arguments.start_method,
        )
    except ConfigError as error:
        print(f"swift-loader check: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0 if report.is_ok else 1


def _named(name: str) -> Any:
    module, _, path = name.partition(":")
    if not path:
        raise ConfigError(f"the dataset is named as package.module:Dataset, not {name!r}")
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


def _kwargs(text: str) -> dict[str, Any]:
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f'--kwargs takes JSON, such as \'{{"folder": "train"}}\': {error}') from None
    if not isinstance(kwargs, dict):
        raise ConfigError(f"--kwargs takes an object of JSON, not {text}")
    return kwargs
