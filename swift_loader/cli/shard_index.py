"""`swift-loader shard index URL`: shards that are there become a set; nothing of them is written anew."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from swift_loader.cli import naming, shard_set
from swift_loader.errors import ConfigError
from swift_loader.telemetry.words import counted, nbytes

if TYPE_CHECKING:
    from swift_loader.shards.catalog import Catalog


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "url", metavar="URL", help="a folder of shards, or a pattern such as 'laion/{00000..01023}.tar'"
    )
    parser.add_argument("--index-to", metavar="DIR",
                        help="a folder for tables and index, where none can be written beside the shards")  # fmt: skip
    parser.add_argument("--checksums", action="store_true",
                        help="of a set of MosaicML's or LitData's: read all of it, to check by")  # fmt: skip
    parser.add_argument("--workers", type=naming.positive, metavar="N", help="processes (default: a core each)")
    parser.add_argument(
        "--merge", action="store_true", help="the shards are those of `create --part`: make their index"
    )

    shard_set.add_server(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a sentence")


def run(arguments: argparse.Namespace) -> int:
    """Makes tables and index; what an earlier call has made is taken."""
    if arguments.merge and arguments.index_to:
        raise ConfigError("--merge makes the index of parts beside them: not with --index-to")
    catalog = _merged(arguments) if arguments.merge else _indexed(arguments)
    if arguments.json:
        rows = {"shards": len(catalog.rows), "nbytes": catalog.nbytes, "generation": catalog.generation}
        print(json.dumps({"samples": catalog.samples, **rows}, indent=1))
        return 0
    told = (counted(catalog.samples, "sample"), counted(len(catalog.rows), "shard"), nbytes(catalog.nbytes))
    print(f"{', '.join(told)}: {arguments.index_to or arguments.url}, generation {catalog.generation}")
    return 0


def _merged(arguments: argparse.Namespace) -> Catalog:
    from swift_loader.shards.creating import merge

    return merge(arguments.url, client=shard_set.client_of(arguments))


def _indexed(arguments: argparse.Namespace) -> Catalog:
    from swift_loader.cli.shard_bar import Far, ShardBar
    from swift_loader.host import cores
    from swift_loader.shards.indexing import Looked, index

    if "://" not in arguments.url:
        _tell_what_is_there(arguments.url, arguments.index_to)
    with ShardBar("index") as shown:

        def watch(looked: Looked) -> None:
            shown(
                Far(
                    looked.shards,
                    looked.total,
                    "shard",
                    looked.shards,
                    looked.nbytes,
                    counted(looked.samples, "sample"),
                )
            )

        return index(
            arguments.url,
            index_to=arguments.index_to,
            workers=arguments.workers or len(cores.allowed()),
            checksums=arguments.checksums,
            progress=watch,
            client=shard_set.client_of(arguments),
        )


def _tell_what_is_there(url: str, index_to: str | None) -> None:
    """Of those that are to have a table beside them, how many an earlier call came to."""
    from swift_loader.shards.beside import ENDING
    from swift_loader.shards.sets import is_pattern, matched

    if is_pattern(url):
        folder, names = matched(url)
    else:
        there = Path(url)
        folder, names = url, [path.name for end in ("tar", "mds", "bin") for path in there.glob(f"*.{end}")]
    tables = Path(index_to or folder)
    found = sum((tables / f"{name}{ENDING}").exists() for name in names)
    if found:
        print(f"{found:,} of {counted(len(names), 'shard')} are there", file=sys.stderr)
