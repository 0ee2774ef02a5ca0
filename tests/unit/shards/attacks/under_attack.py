"""Reads all attacks in a process of its own, and says of each what came of it: run by test_attacks.py."""

import json
import resource
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from swift_loader import shards
from swift_loader.shards.catalog import Catalog
from swift_loader.shards.table import Table
from swift_loader.shards.tar import members
from tests.unit.shards.attacks import catalogs, tables, tars
from tests.unit.shards.made import shard, table

opened = []
#: What is done between attacks does not count.
watch = {"on": True}


def note(event, arguments):
    """Which files are opened."""
    if (
        watch["on"]
        and event in ("open", "os.link", "os.rename", "os.remove", "os.symlink")
        and isinstance(arguments[0], str | bytes)
    ):
        opened.append(str(arguments[0]))


def a_set(catalog):
    """Opens a set with this catalog, looks through it, and reads each shard's table."""

    with tempfile.TemporaryDirectory() as name:
        watch["on"] = False
        folder = Path(name, "set")
        folder.mkdir()
        for line in range(3):
            (folder / f"shard-{line:06d}.tar").write_bytes(shard([("k", {"a": b"b"})]))
        (folder / "index.swift").write_bytes(catalog)
        watch["on"] = True
        try:
            found = shards.read_catalog(shards.store_at(folder))
            shards.read_table(shards.store_at(folder), found.shard(0))
        finally:
            shards.verify(folder)
            watch["on"] = False
            opened[:] = [path for path in opened if not path.startswith(name)]


WAYS = {
    "tar": (tars.ATTACKS, lambda data: list(members(memoryview(data)))),
    "table": (tables.ATTACKS, lambda data: Table.read(data, table().payload_nbytes)),
    "catalog": (catalogs.ATTACKS, Catalog.read),
    "set": (catalogs.ATTACKS, a_set),
}


def main():
    """One line of JSON for each attack."""
    sys.addaudithook(note)
    for attacks, way in WAYS.values():  # once, so that imports and first calls are not counted
        for data in list(attacks.values())[:2]:
            try:
                way(data)
            except Exception:
                pass
    tracemalloc.start()
    for kind, (attacks, way) in WAYS.items():
        for name, data in attacks.items():
            opened.clear()
            watch["on"] = True
            tracemalloc.reset_peak()
            before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
            try:
                way(data)
                error = "none"
            except Exception as raised:
                error = type(raised).__name__
            seconds = time.process_time() - began
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            told = {"error": error, "seconds": seconds, "kib": max(grown, tracemalloc.get_traced_memory()[1] >> 10)}
            print(json.dumps({"kind": kind, "name": name, **told, "opened": opened}), flush=True)


if __name__ == "__main__":
    main()
