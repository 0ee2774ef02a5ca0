"""A set as commands are told of it: its place, its generation, and the folder of its index."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from swift_loader.cli import naming

if TYPE_CHECKING:
    from swift_loader.shards.opened import OpenShard, OpenShards
    from swift_loader.shards.sets import OpenedSet
    from swift_loader.shards.store import Store
    from swift_loader.stores.client import Client

URL = "a folder with an index.swift, or a pattern such as 'train-{000..127}.tar'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What commands take that read a set."""
    parser.add_argument("url", metavar="URL", help=URL)
    parser.add_argument("--generation", type=naming.positive, metavar="N", help="of a set that has grown; the newest")
    parser.add_argument("--index", metavar="DIR", help="the folder that `index --index-to` was told")
    add_server(parser)


def add_server(parser: argparse.ArgumentParser) -> None:
    """What commands take that ask a server. Keys are no words: other processes see those."""
    parser.add_argument("--endpoint", metavar="http://HOST:PORT",
                        help="the server of s3://, where it is not Amazon's (or AWS_ENDPOINT_URL); keys are read from "
                        "the environment, a profile, or what the cloud gives its machines")  # fmt: skip


def client_of(arguments: argparse.Namespace) -> Client | None:
    """Who asks; None where the environment says all."""
    if arguments.endpoint is None:
        return None
    from swift_loader.stores.client import Client

    return Client(arguments.endpoint)


def written_to(arguments: argparse.Namespace, url: str) -> Store:
    """The store of an address that is written to: a folder is made, and a bucket."""
    from swift_loader.shards.store import store_at
    from swift_loader.shards.url import place_of
    from swift_loader.stores.client import Client

    place = place_of(url)
    if place.scheme != "s3":
        return store_at(url, make=True, client=client_of(arguments))
    from swift_loader.stores.buckets import with_bucket

    return with_bucket(place, client_of(arguments) or Client())


class ReadSet(NamedTuple):
    """A set that is open."""

    opened: OpenedSet
    shards: OpenShards

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ReadSet:
        """That which the command line names."""
        from swift_loader.shards.opened import OpenShards
        from swift_loader.shards.sets import open_set

        opened = open_set(arguments.url, arguments.generation, arguments.index)
        return cls(opened, OpenShards(opened))

    def sample(self, index: int) -> tuple[OpenShard, int]:
        """The shard of a sample, and its number in there.

        Raises:
            ConfigError: if there is none.
        """
        import numpy as np

        from swift_loader.errors import ConfigError

        catalog = self.opened.catalog
        if not 0 <= index < catalog.samples:
            raise ConfigError(f"there are {catalog.samples:,} samples, and no sample {index}")
        which, inner = catalog.locate(np.array([index]))
        return self.shards[int(which[0])], int(inner[0])


def sizes(shard: OpenShard, number: int) -> dict[str, int]:
    """The fields that a sample has, and their bytes."""
    from swift_loader.shards.table import ABSENT

    table = shard.table
    if table.rows is not None:
        return {
            field.name: len(shard.read(number, at)) if field.has_column else field.array_nbytes or 0
            for at, field in enumerate(table.fields)
        }
    entries = table.entries[number, :, 1].tolist()
    return {
        field.name: len(shard.read(number, at)) if nbytes == ABSENT else nbytes
        for at, (field, nbytes) in enumerate(zip(table.fields, entries, strict=True))
        if nbytes != ABSENT or field.has_column
    }
