"""The page on the format of shards: its reader reads what we write, and its offsets are those of the bytes."""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from swift_loader import shards
from swift_loader.shards.catalog import ROW, Catalog
from swift_loader.shards.opening import describe
from tests.unit.shards.made import table
from tests.unit.shards.sources import Mixed
from tests.unit.shards.test_sets_are_made import read_all

PAGE = (Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "shard_format.md").read_text(encoding="utf-8")


@pytest.fixture
def reader():
    names = {}
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(code, names)
    return names


@pytest.fixture
def folder(tmp_path):
    shards.create(Mixed(), tmp_path, maxsize="40KB")
    return tmp_path


def test_the_reader_of_the_page_reads_a_set(reader, folder):
    assert dict(reader["read_set"](folder)) == read_all(folder)


def test_it_reads_columns_keys_and_footers(reader, folder):
    store = shards.store_at(folder)
    catalog = shards.read_catalog(store)
    for number, (name, count, offset, nbytes, digest) in enumerate(reader["read_catalog"](folder)):
        shard, ours = describe(store, name, store.nbytes(name))
        assert reader["read_footer"](folder / name) == (offset, nbytes, digest, shard.object_nbytes, count)
        assert catalog.shard(number) == shard
        _, _, columns, keys = reader["read_table"](bytes(store.read(name, offset, nbytes)))
        assert keys == [ours.key(index) for index in range(count)]
        assert {k: v.tolist() for k, v in columns.items()} == {k: v.tolist() for k, v in ours.columns.items()}


def test_it_reads_numbers_that_stand_in_the_table_alone(reader, tmp_path):
    samples = [{"txt": f"{at}", "cls": at} for at in range(9)]
    shards.create(samples, tmp_path, small_members=False, shuffle=False, maxcount=4)
    assert [sample for _, sample in reader["read_set"](tmp_path)] == [{"txt": b"%d" % at, "cls": at} for at in range(9)]


def test_it_sees_damage(reader, folder):
    path = folder / "shard-000002.tar"
    data = bytearray(path.read_bytes())
    at = data.index(b"text ")
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(AssertionError, match="damaged"):
        list(reader["read_set"](folder))


def offsets(after):
    """The first column of the first table behind these words."""
    rows = PAGE[PAGE.index(after) :].partition("\n|")[2].partition("\n\n")[0]
    return [(int(at), kind) for at, kind in re.findall(r"^\| (\d+) \| (.*?) \|", rows, re.MULTILINE)]


NBYTES = {"u16": 2, "u32": 4, "u64": 8, "8 bytes": 8, "16 bytes": 16, "32 bytes": 32, "6 u64": 48, "4 u32": 16}


@pytest.mark.parametrize(
    "after", ["### Footer", "### Table", "With the flag *rows*", "## The catalog", "A row has 128"]
)
def test_the_parts_of_a_record_follow_each_other(after):
    places = offsets(after)
    assert len(places) > 5
    for (at, kind), (following, _) in pairwise(places):
        assert at + NBYTES[kind] == following or following in (184, 504, 4088)  # the checksum, behind unused bytes


def test_the_offsets_of_the_table_are_those_of_the_bytes():
    made = table()
    data = made.written()
    u32, u64 = (lambda at: struct.unpack_from("<I", data, at)[0]), (lambda at: struct.unpack_from("<Q", data, at)[0])
    assert (u32(8), u32(12), u64(16), u64(24), u64(32)) == (192, 3, 5, made.payload_nbytes, 7)
    assert data[40:56] == made.origin.recipe
    assert data[56:72] == made.payload_digest
    assert (u64(72), u64(80), u64(120), u64(144)) == (192, 384, 2, 100)
    assert {at for at, _ in offsets("### Table")} >= {8, 12, 16, 24, 32, 40, 56, 72, 120, 144}


def test_the_offsets_of_a_row_are_those_of_the_bytes():
    places = [at for at, _ in offsets("A row has 128")]
    assert places == [ROW.fields[name][1] for name in ROW.names[:-1]]


def test_the_offsets_of_the_catalog_are_those_of_the_bytes(folder):
    data = (folder / "index.swift").read_bytes()
    catalog = Catalog.read(data)
    numbers = struct.unpack_from("<2I5Q", data, 8)
    assert numbers == (1, 4096, 1, len(catalog.rows), 300, catalog.nbytes, 1)
    assert data[56:88] == catalog.recipe + catalog.uuid
    assert struct.unpack_from("<Q", data, 136)[0] == len(data)
    assert data[144:160] == catalog.digest
