"""`swift-loader shard ls URL`: a line for each sample: its index, its key, its fields and their bytes."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from typing import Any

from swift_loader.cli import naming, shard_set
from swift_loader.cli.panel import plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    shard_set.add_arguments(parser)
    parser.add_argument("--most", type=naming.positive, metavar="N", help="so many samples (default: all)")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")


def run(arguments: argparse.Namespace) -> int:
    """Prints them."""
    for sample in itertools.islice(_samples(shard_set.ReadSet.of(arguments)), arguments.most):
        if arguments.json:
            print(json.dumps(sample))
        else:
            fields = "  ".join(f"{name} {nbytes:,}" for name, nbytes in sample["fields"].items())
            print(f"{sample['index']:>9}  {plain(sample['key'])}  {fields}")
    return 0


def _samples(there: shard_set.ReadSet) -> Iterator[dict[str, Any]]:
    index = itertools.count()
    for number in range(len(there.opened.catalog.rows)):
        shard = there.shards[number]
        for inside in range(shard.table.samples):
            fields = shard_set.sizes(shard, inside)
            yield {"index": next(index), "shard": shard.name, "key": shard.table.key(inside), "fields": fields}
