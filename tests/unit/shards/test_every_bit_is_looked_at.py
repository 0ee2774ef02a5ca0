"""A set in which one bit is another, or that is cut, is seen as damaged: by its checksums, or by verify."""

import random

import pytest

from swift_loader import shards
from swift_loader.errors import ShardError
from swift_loader.shards import verifying
from swift_loader.shards.catalog import Catalog
from swift_loader.shards.opening import describe
from swift_loader.shards.verifying import verify
from tests.unit.shards.in_memory import InMemory
from tests.unit.shards.sources import Mixed

FEW, MANY, TURNS = 2_000, 100_000, 8


@pytest.fixture
def store(tmp_path, monkeypatch):
    shards.create(Mixed(6), tmp_path, maxcount=3)
    there = InMemory.of(tmp_path)
    monkeypatch.setattr(verifying, "store_at", lambda where, client: where)
    assert verify(there) == []
    return there


def flips_that_nobody_sees(store, count, seed=0):
    rng = random.Random(seed)
    names = sorted(store.objects)
    sizes = [len(store.objects[name]) for name in names]
    unseen = []
    for _ in range(count):
        (name,) = rng.choices(names, sizes)
        whole = store.objects[name]
        flipped = bytearray(whole)
        place = rng.randrange(len(whole) * 8)
        flipped[place // 8] ^= 1 << place % 8
        store.objects[name] = bytes(flipped)
        if not any(damage.shard == name for damage in verify(store)):
            unseen.append((name, place))
        store.objects[name] = whole
    return unseen


def test_a_flipped_bit_is_found_wherever_it_is(store):
    assert flips_that_nobody_sees(store, FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(1, TURNS + 1))
def test_of_100_000_flipped_bits_each_is_found(store, turn):
    assert flips_that_nobody_sees(store, MANY // TURNS, turn) == []


def test_damage_of_a_sample_is_told_with_its_place_and_key(store):
    name = "shard-000001.tar"
    shard, table = describe(store, name, store.nbytes(name))
    assert shard.samples == 3
    offset, _, _ = (
        table.entries[1, table.field_numbers["text.txt"]].tolist()
        if "text.txt" in table.field_numbers
        else (table.entries[1, table.field_numbers["text"]].tolist())
    )
    data = bytearray(store.objects[name])
    data[offset + 2] ^= 4
    store.objects[name] = bytes(data)
    (damage,) = verify(store)
    assert (damage.shard, damage.offset, damage.key) == (name, offset, table.key(1))
    assert "text" in damage.what


def test_what_is_missing_is_told(store):
    del store.objects["shard-000000.tar"], store.objects["index-000001.swift"]
    assert [(damage.shard, damage.what) for damage in verify(store)] == [("shard-000000.tar", "it is missing")]


def test_a_set_whose_one_catalog_is_damaged_is_looked_through_by_the_other(store):
    store.objects["index.swift"] = b"no catalog"
    del store.objects["shard-000000.tar"]
    assert [damage.shard for damage in verify(store)] == ["index.swift", "shard-000000.tar"]


def test_without_any_catalog_there_is_no_set(store):
    del store.objects["index.swift"], store.objects["index-000001.swift"]
    with pytest.raises(FileNotFoundError):
        verify(store)


def test_progress_is_told(store):
    told = []
    verify(store, progress=lambda verified: told.append(verified[:3]))
    assert told == [(1, 2, 3), (2, 2, 6)]


def test_each_cut_of_each_file_is_found(store):
    cuts = [
        (name, end)
        for name, whole in store.objects.items()
        for end in sorted({cut + d for cut in range(0, len(whole), 512) for d in (-1, 0, 1)} & set(range(len(whole))))
    ]
    for name, end in cuts:
        whole = store.objects[name]
        store.objects[name] = whole[:end]
        assert any(damage.shard == name for damage in verify(store)), (name, end)
        with pytest.raises(ShardError):
            Catalog.read(whole[:end]) if name.startswith("index") else describe(store, name, end)
        store.objects[name] = whole
