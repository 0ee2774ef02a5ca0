"""`swift-loader shard verify URL`: every byte of a set is looked at; what is not as it was written is listed."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from swift_loader.cli import shard_set
from swift_loader.cli.panel import plain
from swift_loader.errors import ConfigError
from swift_loader.telemetry.words import counted, nbytes, percent

if TYPE_CHECKING:
    from swift_loader.shards.verifying import Damage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    shard_set.add_arguments(parser)
    parser.add_argument("--sample", type=share, default=1.0, metavar="SHARE",
                        help="so many of the samples of each shard, such as 1%% (default: all)")  # fmt: skip
    parser.add_argument("--repair-from", metavar="URL2", help="mend what is damaged from another copy of the set")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the list")


def run(arguments: argparse.Namespace) -> int:
    """Prints what is damaged: shard, offset, key; 1 if there is anything."""
    from swift_loader.cli.shard_bar import Far, ShardBar
    from swift_loader.shards.verifying import Verified, verify

    if arguments.repair_from and arguments.sample != 1:
        raise ConfigError("--repair-from mends a set of which every byte was looked at: not with --sample")
    client = shard_set.client_of(arguments)
    last = Verified(0, 0, 0, 0, 0)
    with ShardBar("verify") as shown:

        def watch(verified: Verified) -> None:
            nonlocal last
            last = verified
            more = f"{verified.damages:,} damaged" if verified.damages else ""
            shown(Far(verified.shards, verified.total, "shard", verified.shards, verified.nbytes, more))

        try:
            found = verify(
                arguments.url, arguments.generation, watch, index=arguments.index, share=arguments.sample, client=client
            )  # fmt: skip
        except FileNotFoundError:
            url = arguments.index or arguments.url
            raise ConfigError(
                f"{url} has no index.swift, and so nothing to compare with: `shard index --checksums` makes it"
            ) from None
    if arguments.json:
        told = {"shards": last.shards, "samples": last.samples, "nbytes": last.nbytes}
        print(
            json.dumps({**told, "share": arguments.sample, "damages": [asdict(damage) for damage in found]}, indent=1)
        )
    else:
        for damage in found:
            print(_line(damage))
        looked = "" if arguments.sample == 1 else f", {percent(arguments.sample)} of the samples looked at"
        verdict = f"{counted(len(found), 'place')} damaged" if found else "nothing is damaged"
        print(f"{verdict}: {counted(last.samples, 'sample')} in {counted(last.shards, 'shard')}{looked}")
    if found and arguments.repair_from:
        return _repaired(arguments, found)
    return 1 if found else 0


def _repaired(arguments: argparse.Namespace, found: list[Damage]) -> int:
    """Mends it; 1 if it is damaged still."""
    from swift_loader.shards.repairing import repair
    from swift_loader.shards.store import store_at
    from swift_loader.shards.verifying import verify

    client = shard_set.client_of(arguments)
    store, other = store_at(arguments.url, client=client), store_at(arguments.repair_from, client=client)
    done = repair(store, other, found, arguments.generation)
    left = verify(arguments.url, arguments.generation, client=client)
    for damage in left:
        print(_line(damage), file=sys.stderr)
    mended = f"{counted(done.shards, 'shard')}, {nbytes(done.nbytes)} of {arguments.repair_from}"
    now = f"{counted(len(left), 'place')} damaged still" if left else "nothing is damaged"
    print(f"mended: {mended}; {now}", file=sys.stderr)
    return 1 if left else 0


def share(word: str) -> float:
    """A part, told as ``1%`` or ``0.01``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", word)
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"a share is such as 1% or 0.01, above 0 and at most 100%, not {word!r}")
    return value


def _line(damage: Damage) -> str:
    place = "" if damage.offset is None else f"  byte {damage.offset:,}"
    key = "" if damage.key is None else f"  sample {damage.key!r}"
    return plain(f"{damage.shard}{place}{key}  {damage.what}")
