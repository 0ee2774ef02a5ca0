"""`swift-loader check package.module:Dataset`: what will go wrong with a dataset in workers, on a page."""

from __future__ import annotations

import argparse
import sys
from typing import get_args

from swift_loader.cli import naming
from swift_loader.errors import ConfigError
from swift_loader.settings.arguments import StartMethod
from swift_loader.testing import check_dataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("dataset", help="package.module:Dataset, a class or a function that makes the dataset")
    parser.add_argument("--kwargs", default="{}", help="its arguments, as JSON (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", default=[], metavar="CHECK", help="these checks alone")
    parser.add_argument("--samples", type=int, default=64, help="looked at closely (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long it may take (default: %(default)s)")
    parser.add_argument("--start-method", choices=get_args(StartMethod), default="auto")


def run(arguments: argparse.Namespace) -> int:
    """Prints the page; 1 if there is a problem, 2 if there is no such dataset."""
    naming.look_here()
    try:
        report = check_dataset(
            naming.named(arguments.dataset),
            naming.arguments_of(arguments.kwargs),
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
