"""`swift-loader shard create SOURCE DEST`: a set of shards of a dataset, read and encoded by worker processes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from swift_loader.cli import naming, shard_sources, shard_writing
from swift_loader.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", metavar="SOURCE", help=shard_sources.HELP)
    parser.add_argument("--kwargs", default="{}", help="the dataset's arguments, as JSON (default: %(default)s)")
    parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=None,
                        help="write samples in a random order (default: yes, but for Parquet)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of that order (default: %(default)s)")
    parser.add_argument("--fields", metavar="jpg=0,cls=1",
                        help="which fields, and where in a sample they are: a number or a name")  # fmt: skip
    parser.add_argument("--quality", type=int, default=90, metavar="N", help="of JPEG (default: %(default)s)")
    parser.add_argument("--key", metavar="FIELD", help="the field that names samples (default: nine digits)")
    parser.add_argument("--part", metavar="I/N", help="write one of n parts; other processes or machines the others")
    parser.add_argument("--name", help="what the samples are called, where SOURCE is written otherwise elsewhere")
    parser.add_argument("--rows", action=argparse.BooleanOptionalAction, default=None,
                        help="arrays that are alike in all samples lie one behind the other, without a header for each "
                        "(default: for .npy and .bin)")  # fmt: skip
    parser.add_argument("--append", action="store_true", help="add the samples to the set that is there")
    parser.add_argument("--dry-run", action="store_true", help="read 256 samples and tell size, shards and minutes")
    shard_writing.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the set; 1 if a sample cannot be written."""
    naming.look_here()
    fields = shard_sources.fields_of(arguments.fields)
    source = shard_sources.source_of(arguments.source, naming.arguments_of(arguments.kwargs), fields)
    making: dict[str, Any] = {
        "name": arguments.name or source.name, "fields": fields and _places(fields), "key": arguments.key,
        "seed": arguments.seed, "quality": arguments.quality, "part": arguments.part and _part(arguments.part),
        "shuffle": source.is_random if arguments.shuffle is None else arguments.shuffle,
        "rows": source.are_rows if arguments.rows is None else arguments.rows,
        **shard_writing.limits(arguments),
    }  # fmt: skip
    writing = shard_writing.Writing("create", source.samples, making, arguments)
    if arguments.dry_run:
        return writing.tried()
    return writing.done(notes=source.notes, append=arguments.append)


def _places(fields: Mapping[str, str]) -> dict[str, str | int]:
    """Items of tuples are told by their numbers."""
    return {name: int(place) if place.isdecimal() else place for name, place in fields.items()}


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not number.isdecimal() or not count.isdecimal() or int(number) >= int(count):
        raise ConfigError(f"--part is such as 0/4, 1/4, 2/4 and 3/4, not {text!r}")
    return int(number), int(count)
