"""`swift-loader serve MODULE:FUNCTION`: makes batches for loaders that connect."""

from __future__ import annotations

import argparse
import logging
import sys

from swift_loader.cli.naming import look_here, named
from swift_loader.errors import SwiftLoaderError
from swift_loader.loader import SwiftLoader
from swift_loader.net.address import DEFAULT_PORT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "loader", metavar="MODULE:FUNCTION", help="a function that returns a SwiftLoader which was not started"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="default: %(default)s")
    parser.add_argument("--unix", metavar="PATH", help="listen at a socket in the file system instead")
    parser.add_argument(
        "--key", action="append", metavar="FILE", help="a key, or a folder of keys; may be said several times"
    )
    parser.add_argument(
        "--version", help="what servers of one loader must agree in, where their datasets' arguments or source differ"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves until it is interrupted; 1 if it cannot."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    address = f"unix:{arguments.unix}" if arguments.unix else f"tcp://{arguments.host}:{arguments.port}"
    try:
        look_here()
        loader = named(arguments.loader, "the function that makes the loader is named as package.module:function")()
        if not isinstance(loader, SwiftLoader):
            print(f"swift-loader serve: {arguments.loader} gives no SwiftLoader", file=sys.stderr)
            return 2
        loader.serve(address, key=arguments.key, version=arguments.version)
    except SwiftLoaderError as error:
        print(f"swift-loader serve: {error}", file=sys.stderr)
        return 1
    return 0
