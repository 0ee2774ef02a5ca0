"""Catalogs: what is written is read again, samples are found, and what cannot be is refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import wide_digest_of
from swift_loader.shards.catalog import ROW, Catalog, Kind, Shard, write
from swift_loader.shards.table import sealed
from tests.unit.shards.made import catalog_bytes, lines


@pytest.mark.parametrize("count", [1, 2, 100, 9000, 20000])
def test_what_is_written_is_read_again(count):
    made = lines(count)
    catalog = Catalog.read(write(made, generation=7, recipe=bytes(range(16)), meta={"class": ["a", "b"]}))
    assert [catalog.shard(k) for k in (0, count // 2, count - 1)] == [made[k] for k in (0, count // 2, count - 1)]
    assert catalog.samples == sum(shard.samples for shard in made)
    assert catalog.nbytes == sum(shard.object_nbytes for shard in made)
    assert (catalog.generation, catalog.recipe, catalog.is_complete) == (7, bytes(range(16)), True)
    assert catalog.meta == {"class": ["a", "b"]}


@given(st.lists(st.integers(1, 1 << 31), min_size=1, max_size=50), st.data())
def test_each_sample_has_its_shard(counts, data):
    made = [Shard(f"s{k}", count, 9000, 8000, 488, 0, bytes(16)) for k, count in enumerate(counts)]
    catalog = Catalog.read(write(made))
    total = sum(counts)
    indices = data.draw(st.lists(st.integers(0, total - 1), min_size=1))
    edges = np.cumsum(counts)
    which, inner = catalog.locate(np.array([*indices, 0, total - 1, *(edges - 1).tolist()]))
    for index, shard, place in zip(indices, which.tolist(), inner.tolist(), strict=False):
        assert sum(counts[:shard]) + place == index
        assert 0 <= place < counts[shard]
    assert which[len(indices) :].tolist() == [0, len(counts) - 1, *range(len(counts))]


def test_the_same_shards_are_the_same_bytes_and_others_another_set():
    assert catalog_bytes(3) == catalog_bytes(3)
    assert Catalog.read(catalog_bytes(3)).uuid != Catalog.read(catalog_bytes(4)).uuid


NAMES = {
    "empty": "", "absolute": "/etc/passwd", "up": "../x", "up_within": "a/../../x", "here": "./x", "nul": "a\0b",
    "backslash": "a\\b", "long": "a" * 1025, "twice": "shard-000001.tar", "twice_slash": "a//b", "dots": "..",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_may_lead_elsewhere_is_refused(name):
    made = lines(3)
    data = write([*made, Shard(NAMES[name], 1, 9000, 8000, 488, 0, bytes(16))])
    with pytest.raises(ShardError):
        Catalog.read(data)


@pytest.mark.parametrize("name", ["a/b.tar", "..a", "a..b", "ärger.tar", "x.tar", "a/.b"])
def test_a_name_that_leads_down_is_not(name):
    assert Catalog.read(write([*lines(2), Shard(name, 1, 9000, 8000, 488, 0, bytes(16))])).name(2) == name


def _resealed(data, change):
    data = bytearray(data)
    change(data)
    data[144:160] = wide_digest_of(data[4096:])
    data[:4096] = sealed(bytes(data[:4096]))
    return bytes(data)


def _row(**changed):
    def change(data):
        rows = np.frombuffer(data, ROW, 3, 4096)
        for name, value in changed.items():
            rows[name][1] = value

    return lambda: _resealed(catalog_bytes(), change)


def _head(at, value, width=8):
    def change(data):
        data[at : at + width] = value.to_bytes(width, "little")

    return lambda: _resealed(catalog_bytes(), change)


REFUSED = {
    "no_samples": _row(count=0),
    "too_many_samples": _row(count=1 << 40),
    "other_first": _row(first=1),
    "table_behind_the_end": _row(table_offset=1 << 50),
    "table_overflows": _row(table_offset=(1 << 64) - 100),
    "table_too_large": _row(table_nbytes=5 << 30, object_nbytes=10 << 30),
    "huge_object": _row(object_nbytes=1 << 60),
    "name_elsewhere": _row(name_offset=0),
    "name_too_long": _row(name_nbytes=60000),
    "unknown_kind": _row(kind=99),
    "rows_behind_the_end": _row(kind=2, row_nbytes=1 << 62),
    "other_version": _head(8, 2, 4),
    "other_head": _head(12, 512, 4),
    "more_shards": _head(24, 1 << 60),
    "no_shards": _head(24, 0),
    "other_samples": _head(32, 5),
    "rows_elsewhere": _head(88, 4097),
    "names_behind": _head(112, 1 << 63),
    "meta_over_names": _head(120, 4096),
    "other_size": _head(136, 10),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name):
    with pytest.raises(ShardError):
        Catalog.read(REFUSED[name]())


def test_resealing_alone_breaks_nothing():
    assert _resealed(catalog_bytes(), lambda _: None) == catalog_bytes()


def test_tables_that_lie_beside_may_be_larger_than_what_they_tell_of():
    shard = Shard("a.tar", 1, 100, 0, 5000, 0, bytes(16), Kind.SIDECAR)
    assert Catalog.read(write([shard])).shard(0) == shard


def test_each_bit_counts():
    data = catalog_bytes(2)
    for bit in [*range(200 * 8), *range(4088 * 8, len(data) * 8)]:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ShardError):
            Catalog.read(flipped)


def test_each_cut_is_seen():
    data = catalog_bytes(2)
    for end in (0, 1, 8, 4095, 4096, 4097, len(data) - 1):
        with pytest.raises(ShardError):
            Catalog.read(data[:end])
    with pytest.raises(ShardError):
        Catalog.read(data + b"\0")


@pytest.mark.parametrize("meta", ["[" * 9 + "]" * 9, "[" * 100_000, '{"a":', "1" * 5000])
def test_notes_that_harm_are_refused_where_they_are_read(meta):
    with pytest.raises(ShardError):
        _ = Catalog.read(_with_meta(meta)).meta


def test_notes_of_eight_levels_are_read():
    deep = "[" * 8 + "]" * 8
    assert Catalog.read(_with_meta(deep)).meta == json.loads(deep)


def test_notes_that_are_too_large_are_refused():
    with pytest.raises(ShardError, match="too large"):
        Catalog.read(_with_meta(" " * ((1 << 20) + 1)))


def _with_meta(text):
    def change(data):
        data += text.encode()
        data[128:144] = len(text).to_bytes(8, "little") + len(data).to_bytes(8, "little")

    return _resealed(catalog_bytes(1), change)
