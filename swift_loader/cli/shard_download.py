"""`swift-loader shard download URL DIR`: a set of a bucket comes to a folder, each shard checked on its way."""

from __future__ import annotations

import argparse

from swift_loader.cli import shard_set, shard_transfer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("url", metavar="URL", help="such as s3://bucket/folder")
    parser.add_argument("folder", metavar="DIR", help="a folder; it is made if there is none")
    shard_set.add_server(parser)
    shard_transfer.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Copies the set; shards that are there stay."""
    from swift_loader.shards.store import store_at

    source = store_at(arguments.url, client=shard_set.client_of(arguments))
    return shard_transfer.run("download", source, store_at(arguments.folder, make=True), arguments)
