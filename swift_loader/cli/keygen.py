"""`swift-loader keygen FILE`: makes a key for a server and its clients."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from swift_loader.errors import ConfigError
from swift_loader.net.keygen import make_key


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("file", type=Path, help="where to write it, such as job.key; clients are known by this name")


def run(arguments: argparse.Namespace) -> int:
    """Prints what to do with it; 2 if it cannot be made."""
    try:
        make_key(arguments.file)
    except ConfigError as error:
        print(f"swift-loader keygen: {error}", file=sys.stderr)
        return 2
    print(f"{arguments.file}: give the same file to the server and to its clients, and to nobody else (key=...)")
    return 0
