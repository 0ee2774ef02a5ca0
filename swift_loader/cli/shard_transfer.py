"""What `shard upload` and `shard download` do alike: a set goes from one place to another, as far as it is let."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from swift_loader.cli import bar, naming
from swift_loader.errors import ConfigError
from swift_loader.telemetry.words import counted, duration, nbytes

if TYPE_CHECKING:
    from swift_loader.shards.store import Store
    from swift_loader.shards.transfer import Transferred


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What both take."""
    parser.add_argument("--shards", metavar="0..99", help="these alone, as a set of its own: 0..99, or 3,7,12..20")
    parser.add_argument("--generation", type=naming.positive, metavar="N", help="of a set that has grown; the newest")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a sentence")


def run(command: str, source: Store, target: Store, arguments: argparse.Namespace) -> int:
    """Copies the set; the exit code."""
    import time

    from swift_loader.cli.shard_bar import Far, ShardBar
    from swift_loader.shards.transfer import Transferred, transfer

    began, last = time.monotonic(), Transferred(0, 0, 0, 0, 0, 0)
    with ShardBar(command) as shown:

        def watch(told: Transferred) -> None:
            nonlocal last
            last = told
            shown(Far(told.shards, told.total, "shard", told.shards, told.nbytes))

        try:
            done = transfer(
                source, target, generation=arguments.generation, progress=watch,
                shards=None if arguments.shards is None else numbers_of(arguments.shards),
            )  # fmt: skip
        except KeyboardInterrupt:
            bar.wipe()
            of = counted(last.total, "shard")
            print(f"stopped: {last.shards:,} of {of} are there, the same call goes on from there", file=sys.stderr)
            return 130
        except FileNotFoundError as error:
            raise ConfigError(f"{source.where} is no set of shards, or not all of one: {error}") from None
    if arguments.json:
        print(json.dumps({"where": target.where, **asdict(done)}, indent=1))
        return 0
    there = f", {done.shards_found:,} of them were there" if done.shards_found else ""
    told = f"{counted(done.samples, 'sample')} in {counted(done.shards, 'shard')}, {nbytes(done.nbytes)}{there}"
    print(f"{told}: {target.where}, generation {done.generation}, {duration(time.monotonic() - began)}")
    return 0


def numbers_of(text: str) -> list[int]:
    """Numbers of shards, from ``0..99`` or ``3,7,12..20``.

    Raises:
        ConfigError: if it is something else.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise ConfigError(f"--shards is such as 0..99 or 3,7,12..20, not {text!r}")
        found.extend(range(int(first), int(last or first) + 1))
    if not found or len(set(found)) != len(found):
        raise ConfigError(f"--shards names shards, each once, and not {text!r}")
    return found
