"""`swift-loader shard cat URL I [FIELD]`: the bytes of a field, and nothing else."""

from __future__ import annotations

import argparse
import sys

from swift_loader.cli import shard_set
from swift_loader.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    shard_set.add_arguments(parser)
    parser.add_argument("sample", metavar="I", type=int, help="the sample's index")
    parser.add_argument("field", metavar="FIELD", nargs="?", help="may be left out where there is only one")


def run(arguments: argparse.Namespace) -> int:
    """Writes them, once their checksum was found right."""
    shard, number = shard_set.ReadSet.of(arguments).sample(arguments.sample)
    has = shard_set.sizes(shard, number)
    field = arguments.field or (next(iter(has)) if len(has) == 1 else None)
    if field is None or field not in has:
        said = "has several fields" if field is None else f"has no field {field!r}"
        raise ConfigError(f"sample {arguments.sample} {said}: name one of {', '.join(has)}")
    sys.stdout.buffer.write(shard.read_file(number, shard.table.field_numbers[field]))
    sys.stdout.buffer.flush()
    return 0
