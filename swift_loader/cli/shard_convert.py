"""`swift-loader shard convert URL DEST`: the samples of any set that can be read, as a set of shards with tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from swift_loader.cli import shard_set, shard_sources, shard_writing
from swift_loader.errors import ConfigError

_DECLINED = {
    "mds": "MDS has one checksum for a whole shard, and opens a file for each sample: sets of it are read as they are, "
    "and --format tar writes what webdataset, tar and this package read",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    shard_set.add_arguments(parser)
    parser.add_argument("--format", choices=("tar", "rows", *_DECLINED), default="tar",
                        help="rows: arrays that are alike, and numbers, without headers (default: %(default)s)"
                        )  # fmt: skip
    parser.add_argument("--fields", metavar="jpg=jpg,cls=label", help="these alone, called so (default: all)")
    parser.add_argument("--new-keys", action="store_true",
                        help="nine digits of the index as keys: where several samples have one")  # fmt: skip
    shard_writing.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the set, its samples in the order in which they are."""
    if arguments.format in _DECLINED:
        raise ConfigError(f"--format {arguments.format} is not written: {_DECLINED[arguments.format]}")
    from swift_loader.shards.copying import samples_of

    fields = shard_sources.fields_of(arguments.fields)
    source = samples_of(
        arguments.url, generation=arguments.generation, index=arguments.index, fields=fields,
        own_keys=not arguments.new_keys,
    )  # fmt: skip
    name = f"{Path(arguments.url).absolute()} {arguments.generation or ''}{' new keys' if arguments.new_keys else ''}"
    making = {
        "name": name, "fields": fields, "shuffle": False, "rows": arguments.format == "rows",
        **shard_writing.limits(arguments),
    }  # fmt: skip
    return shard_writing.Writing("convert", source, making, arguments).done()
