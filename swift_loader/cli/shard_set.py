"""A set as commands are told of it: its place, its generation, and the folder of its index."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from swift_loader.cli import naming

if TYPE_CHECKING:
    from swift_loader.shards.opened import OpenShard, OpenShards
    from swift_loader.shards.sets import OpenedSet

URL = "a folder with an index.swift, or a pattern such as 'train-{000..127}.tar'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What commands take that read a set."""
    parser.add_argument("url", metavar="URL", help=URL)
    parser.add_argument("--generation", type=naming.positive, metavar="N", help="of a set that has grown; the newest")
    parser.add_argument("--index", metavar="DIR", help="the folder that `index --index-to` was told")


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
        return {field.name: field.array_nbytes or 0 for field in table.fields}
    entries = table.entries[number, :, 1].tolist()
    return {
        field.name: nbytes
        for field, nbytes in zip(table.fields, entries, strict=True)
        if nbytes != ABSENT
    }  # fmt: skip
