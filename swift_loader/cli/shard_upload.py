"""`swift-loader shard upload DIR URL`: a set of this machine goes into a bucket, each shard checked on its way."""

from __future__ import annotations

import argparse

from swift_loader.cli import shard_set, shard_transfer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folder", metavar="DIR", help="a folder with an index.swift")
    parser.add_argument("url", metavar="URL", help="such as s3://bucket/folder; a bucket that is missing is made")
    shard_set.add_server(parser)
    shard_transfer.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Copies the set; shards that are there stay."""
    from swift_loader.shards.store import store_at

    source = store_at(arguments.folder)
    return shard_transfer.run("upload", source, shard_set.written_to(arguments, arguments.url), arguments)
