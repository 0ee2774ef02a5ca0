"""Files that are made to harm are errors, at once, without memory for what they claim; and no path of theirs is used.

Each attack is named after what it does, in `attacks/`. They are read in a process of their own, which says what came of
each: one that ended that process would be the last of its lines.
"""

import gc
import json
import subprocess
import sys
import time
import tracemalloc
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import digest_of
from swift_loader.shards.catalog import Catalog
from swift_loader.shards.fields import COLUMN, Field
from swift_loader.shards.table import ABSENT, FOOTER_NBYTES, Footer, Rows, Table, sealed
from swift_loader.shards.tar import members
from tests.unit.shards.attacks import catalogs, tables, tars
from tests.unit.shards.made import catalog_bytes, shard, table

ROOT = Path(__file__).resolve().parents[3]
ATTACKS = {"tar": tars.ATTACKS, "table": tables.ATTACKS, "catalog": catalogs.ATTACKS, "set": catalogs.ATTACKS}
MOST_SECONDS, MOST_KIB = 0.1, 64 << 10


@cache
def what_came_of_it():
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.shards.attacks.under_attack"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {(line["kind"], line["name"]): line for line in lines}


@pytest.mark.xdist_group("attacks")
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, named in ATTACKS.items() for name in named])
def test_an_attack_is_an_error_at_once(kind, name):
    told = what_came_of_it()[kind, name]
    assert told["error"] == "ShardError"
    assert told["seconds"] <= MOST_SECONDS
    assert told["kib"] <= MOST_KIB
    assert told["opened"] == []


def tried(read):
    """What it gives, or None for an error of ours; either at once, and with little memory.

    The bound is of this thread's own time on a core, which other work on the machine does not add to.
    """
    gc.disable()  # the collector's time is that of all tests before
    tracemalloc.start()
    began = time.thread_time()
    try:
        return read()
    except ShardError:
        return None
    finally:
        seconds, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        gc.enable()
        assert seconds <= MOST_SECONDS
        assert peak <= MOST_KIB << 10


INTERESTING = st.sampled_from([0, 1, 2, 3, 63, 64, 192, 512, 1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1]) | (
    st.integers(0, (1 << 64) - 1) | st.integers(0, 4096)
)


@given(st.lists(st.tuples(st.integers(0, 200), INTERESTING), min_size=1, max_size=4))
def test_a_table_with_any_numbers_is_an_error_or_points_to_what_is_there(changes):
    made = table(4)
    data = bytearray(made.written())
    for place, value in changes:
        at = place * 8 % (len(data) - 8)
        data[at : at + 8] = value.to_bytes(8, "little")
    data[:192] = sealed(bytes(data[:192]))
    read = tried(lambda: Table.read(data, made.payload_nbytes))
    if read is None:
        return
    assert read.payload_nbytes <= made.payload_nbytes
    spans = (
        sorted((o, o + n) for o, n, _ in read.entries.reshape(-1, 3).tolist() if n != ABSENT) if not read.rows else []
    )
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(0 <= begin <= end <= read.payload_nbytes for begin, end in spans)
    for index in range(read.samples):
        try:
            read.key(index)
        except ShardError:
            pass


@given(st.lists(st.tuples(st.integers(0, 60), INTERESTING), min_size=1, max_size=4))
def test_a_table_of_rows_with_any_numbers_is_an_error_or_points_to_what_is_there(changes):
    fields = (Field("cls", "<i8", flags=COLUMN), Field("x.npy", "<f4", (2,)), Field("y.npy", "<i2", (4,), 8))
    made = table(
        9, fields, entries=np.zeros((9, 1, 1), "<u8"), rows=Rows(640, 16), payload_nbytes=1024,
        key_ends=np.empty(0, "<u8"), key_bytes=memoryview(b""),
    )  # fmt: skip
    data = bytearray(made.written())
    assert Table.read(data, 1024).rows == made.rows
    for place, value in changes:
        data[place * 8 : place * 8 + 8] = value.to_bytes(8, "little")
    data[:192] = sealed(bytes(data[:192]))
    read = tried(lambda: Table.read(data, made.payload_nbytes))
    if read is not None and read.rows is not None:
        assert read.rows.offset + read.samples * read.rows.nbytes <= read.payload_nbytes <= made.payload_nbytes
        arrays = [field for field in read.fields if not field.has_column]
        assert all(0 < field.skip + field.array_nbytes <= read.rows.nbytes for field in arrays)


@given(st.lists(st.tuples(st.integers(0, 1100), INTERESTING), min_size=1, max_size=4))
def test_a_catalog_with_any_numbers_is_an_error_or_names_what_may_be_named(changes):
    data = bytearray(catalog_bytes())
    for place, value in changes:
        at = (place if place < 512 else place % 60 + 512) * 8 % (len(data) - 8)
        data[at : at + 8] = value.to_bytes(8, "little")
    read = tried(lambda: Catalog.read(catalogs.resealed(data)))
    if read is None:
        return
    names = [read.name(shard) for shard in range(len(read.rows))]
    assert len(set(names)) == len(names)
    assert not [name for name in names if name[0] == "/" or ".." in name.split("/") or "\0" in name]
    assert read.bounds[-1] == sum(int(count) for count in read.rows["count"])
    assert np.all(np.diff(read.bounds) > 0)


@given(
    st.lists(st.tuples(st.sampled_from([0, 100, 124, 148, 156, 157, 257, 345]), st.binary(max_size=12)), max_size=3),
    st.binary(max_size=1500),
)
def test_a_tar_with_any_bytes_is_an_error_or_has_members_that_are_there(changes, behind):
    block = bytearray(shard([("k", {"a": b"b"})])[:512])
    for at, field in changes:
        block[at : at + len(field)] = field
    if not any(at == 148 for at, _ in changes):
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    data = bytes(block) + behind
    found = tried(lambda: list(members(memoryview(data))))
    assert found is None or all(0 <= member.offset <= member.offset + member.nbytes <= len(data) for member in found)


@given(st.lists(st.tuples(st.integers(0, 6), INTERESTING), min_size=1, max_size=3))
def test_a_footer_with_any_numbers_is_an_error_or_points_into_its_file(changes):
    data = bytearray(shard([("k", {"a": b"b"})]))
    footer = bytearray(data[-1536:-1024])
    for place, value in changes:
        footer[place * 8 : place * 8 + 8] = value.to_bytes(8, "little")
    footer[-8:] = digest_of(bytes(footer[:-8])).to_bytes(8, "little")
    assert len(footer) == FOOTER_NBYTES
    read = tried(lambda: Footer.read(bytes(footer), len(data)))
    assert read is None or 512 <= read.table_offset <= read.table_offset + read.table_nbytes == len(data) - 1536
