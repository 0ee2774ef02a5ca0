"""What `shard create` and `shard convert` do alike: a source becomes a set, as far as they are let.

A second call with the same words goes on behind the shards that are there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from swift_loader.cli import bar, shard_set
from swift_loader.telemetry.words import counted, duration, nbytes

if TYPE_CHECKING:
    from swift_loader.shards.creating import Created, Progress
    from swift_loader.shards.making import Making
    from swift_loader.shards.prepared import Ready

_LOOKED_AT = 256
#: Of a sample, in a table.
_TABLE_NBYTES = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What both take."""
    parser.add_argument("dest", metavar="DEST", help="a folder, or such as s3://bucket/folder; made if there is none")
    if not any(action.dest == "endpoint" for action in parser._actions):
        shard_set.add_server(parser)
    parser.add_argument("--maxsize", default="64MB", metavar="SIZE", help="of a shard (default: %(default)s)")
    parser.add_argument("--maxcount", type=float, metavar="N", help="samples of a shard (default: as many as fit)")
    parser.add_argument("--small-members", action=argparse.BooleanOptionalAction, default=True,
                        help="numbers are members of the tar files too, for webdataset's readers, at 1 kB each; "
                        "without, they stand in the tables alone (default: yes)")  # fmt: skip
    parser.add_argument("--workers", type=int, metavar="N",
                        help="processes that read and encode (default: a core each; 0: this one)")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="remove the set that is there, and begin anew")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a sentence")


def limits(arguments: argparse.Namespace) -> dict[str, Any]:
    """When a shard is full, and what lies in it."""
    return {
        "maxsize": arguments.maxsize, "maxcount": arguments.maxcount, "small_members": arguments.small_members,
    }  # fmt: skip


class Writing:
    """One call of a command that writes."""

    def __init__(
        self, command: str, source: Any, making: Mapping[str, Any], arguments: argparse.Namespace
    ) -> None:  # fmt: skip
        from swift_loader.host import cores
        from swift_loader.settings.checks import whole
        from swift_loader.shards.making import Making

        self._command, self._source, self._arguments = command, source, arguments
        self._options, self._making = dict(making), Making.of(making)
        given = arguments.workers
        self._workers = len(cores.allowed()) if given is None else whole("--workers", given, least=0)

    def done(self, *, notes: Mapping[str, Any] | None = None, append: bool = False) -> int:
        """Writes the set; the exit code."""
        from swift_loader.cli.shard_bar import ShardBar
        from swift_loader.cli.shard_reading import ByWorkers
        from swift_loader.shards.creating import create

        last: Progress | None = None
        with ShardBar(self._command) as shown, ByWorkers(self._source, self._making, self._workers) as read:

            def watch(progress: Progress) -> None:
                nonlocal last
                if last is None:
                    _tell_what_is_there(progress)
                last = progress
                shown(_far(progress))

            try:
                created = create(
                    self._source, shard_set.written_to(self._arguments, self._arguments.dest),
                    append=append, overwrite=self._arguments.overwrite,
                    read=read, progress=watch, notes=notes, **self._options,
                )  # fmt: skip
            except KeyboardInterrupt:
                bar.wipe()
                shards = 0 if last is None else last.shards
                print(f"stopped: {counted(shards, 'shard')} written, the same call goes on from there", file=sys.stderr)
                return 130
        self._tell(created)
        return 0

    def tried(self) -> int:
        """Reads some samples, and tells what all of them would come to."""
        from swift_loader.cli.shard_reading import ByWorkers
        from swift_loader.shards.prepared import Preparing

        indices = self._making.indices(len(self._source))
        count = len(indices)
        chosen = (
            [indices[place * count // _LOOKED_AT] for place in range(_LOOKED_AT)] if count > _LOOKED_AT else indices
        )
        preparing, looked, total = Preparing(self._making), 0, 0
        began = time.monotonic()
        with ByWorkers(self._source, self._making, self._workers) as read:
            for index, sample in zip(chosen, read(chosen), strict=True):
                if not looked:
                    began = time.monotonic()  # workers take a while until the first is there
                total += _nbytes_of(preparing(sample, index), self._making)
                looked += 1
        passed = time.monotonic() - began
        each = total / max(1, looked)
        most = self._making.limits
        told: dict[str, Any] = {
            "samples": count, "nbytes": round(each * count), "looked_at": looked,
            "shards": -(-count // max(1, min(most.samples, int(most.nbytes / each)))) if looked else 0,
            "seconds": passed / max(1, looked - 1) * count, "workers": self._workers,
        }  # fmt: skip
        if self._arguments.json:
            print(json.dumps(told, indent=1))
        else:
            print(
                f"{counted(count, 'sample')}, about {nbytes(told['nbytes'])} in {counted(told['shards'], 'shard')}, "
                f"{duration(told['seconds'])} with {counted(self._workers, 'worker')}: "
                f"as {counted(looked, 'sample')} say, and nothing was written"
            )
        return 0

    def _tell(self, created: Created) -> None:
        if self._arguments.json:
            print(json.dumps(asdict(created), indent=1))
            return
        told = f"{counted(created.samples, 'sample')} in {counted(created.shards, 'shard')}, {nbytes(created.nbytes)}"
        there = f", {created.shards_found:,} of them were there" if created.shards_found else ""
        print(f"{told}{there}: {created.where}, {duration(created.seconds)}")
        if created.generation is None:
            where = created.where
            print(f"other parts are still to come: the last of them, or `shard index {where} --merge`, makes the index")
        else:
            print(f"generation {created.generation}; to be read by swift_loader.shards.ShardDataset({created.where!r})")


def _tell_what_is_there(progress: Progress) -> None:
    if progress.shards_found and progress.total:
        about = max(progress.shards_found, round(progress.shards_found * progress.total / progress.samples))
        print(f"{progress.shards_found:,} of about {counted(about, 'shard')} are there", file=sys.stderr)


def _far(progress: Progress) -> Any:
    from swift_loader.cli.shard_bar import Far

    whole = progress.nbytes + progress.nbytes_begun
    return Far(progress.samples, progress.total, "sample", progress.shards, whole)


def _nbytes_of(ready: Ready, making: Making) -> int:
    """What a sample takes in a shard."""
    from swift_loader.shards import tar
    from swift_loader.shards.table import ENTRY_NBYTES

    if making.rows:
        arrays = [field.array for field in ready.fields if field.array is not None]
        return _TABLE_NBYTES + sum(array.array_nbytes or 0 for array in arrays)
    return _TABLE_NBYTES + sum(
        tar.header_nbytes(len(ready.key) + 1 + len(field.name)) + tar.padded(len(field.data)) + ENTRY_NBYTES
        for field in ready.fields
        if making.small_members or field.number is None
    )
