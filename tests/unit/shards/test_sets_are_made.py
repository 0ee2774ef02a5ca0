"""A set is made of a dataset, all of it, in its order, within its limits; again it is the same bytes."""

import itertools
import json
import os
import subprocess
import sys
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import webdataset

from swift_loader import shards
from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards import creating
from swift_loader.shards.opening import describe
from tests.unit.shards.sources import Mixed, digests


class Point(NamedTuple):
    x: float
    label: int


def read_all(folder, generation=None):
    """Each sample's fields as bytes, by its key, as the tables say."""
    store = shards.store_at(folder)
    catalog = shards.read_catalog(store, generation)
    found = {}
    for number in range(len(catalog.rows)):
        shard = catalog.shard(number)
        table, data = shards.read_table(store, shard), store.whole(shard.name)
        for index, entries in enumerate(table.entries.tolist()):
            found[table.key(index)] = {
                field.name: bytes(data[offset : offset + nbytes])
                for field, (offset, nbytes, _) in zip(table.fields, entries, strict=True)
                if nbytes != (1 << 64) - 1
            }
    return found


def by_webdataset(folder):
    files = sorted(str(path) for path in folder.glob("shard-*.tar"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(webdataset.WebDataset(files, shardshuffle=False))


def test_all_samples_are_there_each_once(tmp_path):
    created = shards.create(Mixed(), tmp_path, maxsize="40KB")
    found = read_all(tmp_path)
    assert sorted(found) == [f"{index:09d}" for index in range(300)]
    assert (created.samples, created.shards_found, created.generation) == (300, 0, 1)
    for key, fields in found.items():
        sample = Mixed()[int(key)]
        assert fields["jpg"] == sample["jpg"]
        assert fields["label.cls"] == b"%d" % sample["label"]
        assert json.loads(fields["weight.json"]) == sample["weight"]
        assert fields["text"].decode() == sample["text"]
        assert ("odd.json" in fields) is bool(int(key) % 2)
    assert shards.verify(tmp_path) == []


def test_no_shard_is_larger_than_asked_nor_much_smaller(tmp_path):
    created = shards.create(Mixed(), tmp_path, maxsize=40_000)
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("shard-*"))]
    assert len(sizes) == created.shards
    assert max(sizes) <= 40_000
    assert min(sizes[:-1]) > 25_000
    assert created.nbytes == sum(sizes)


def test_no_shard_has_more_samples_than_asked(tmp_path):
    assert shards.create(Mixed(), tmp_path, maxcount=70.0).shards == 5


def test_the_order_is_shuffled_by_the_seed_or_not_at_all(tmp_path):
    keys = {}
    for name, given in {"a": {}, "b": {}, "c": {"seed": 1}, "d": {"shuffle": False}}.items():
        shards.create(Mixed(), tmp_path / name, **given)
        keys[name] = list(read_all(tmp_path / name))
    assert keys["a"] == keys["b"] != keys["c"]
    assert keys["d"] == sorted(keys["a"]) != keys["a"]


def test_the_same_samples_are_the_same_bytes(tmp_path):
    for name in "ab":
        shards.create(Mixed(), tmp_path / name, maxsize="40KB")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_the_table_has_columns_arrays_and_where_it_stands(tmp_path):
    shards.create(Mixed(), tmp_path, maxcount=100)
    store = shards.store_at(tmp_path)
    catalog = shards.read_catalog(store)
    table = shards.read_table(store, catalog.shard(2))
    indices = [int(table.key(index)) for index in range(100)]
    assert table.columns["label.cls"].tolist() == [index % 10 for index in indices]
    assert table.columns["weight.json"].tolist() == [index / 7 for index in indices]
    assert (table.origin.position, table.origin.total, table.origin.is_last) == (200, 300, True)
    array = table.fields[table.field_numbers["x.npy"]]
    assert (array.dtype, array.shape, array.skip) == ("<f4", (2, 3), 128)
    assert catalog.meta["fields"]["x.npy"] == {"dtype": "<f4", "shape": [2, 3], "column": False}


def test_webdataset_and_tar_read_it(tmp_path):
    shards.create(Mixed(), tmp_path, maxsize="40KB")
    expected = read_all(tmp_path)
    found = by_webdataset(tmp_path)
    assert [sample["__key__"] for sample in found] == list(expected)
    assert [{k: v for k, v in s.items() if k[:2] != "__"} for s in found] == list(expected.values())
    first = min(tmp_path.glob("shard-*.tar"))
    listed = subprocess.run(["tar", "tf", first], capture_output=True, text=True, check=True)
    assert listed.stderr == ""
    assert listed.stdout.split()[-1] == "__swift__/table"


def test_what_webdataset_writes_has_the_members_that_ours_has(tmp_path):
    """Members and bytes: what differs are modes, times and the table."""
    shards.create(Mixed(40), tmp_path / "ours", shuffle=False)
    samples = by_webdataset(tmp_path / "ours")
    with webdataset.TarWriter(str(tmp_path / "theirs.tar"), encoder=False) as writer:
        for sample in samples:
            writer.write({key: value for key, value in sample.items() if key == "__key__" or key[:2] != "__"})
    listed = [shards_members(path) for path in (tmp_path / "theirs.tar", tmp_path / "ours" / "shard-000000.tar")]
    assert listed[0] == listed[1][:-1]


def shards_members(path):
    from swift_loader.shards.tar import members

    data = memoryview(path.read_bytes())
    return [(m.name, bytes(data[m.offset : m.offset + m.nbytes])) for m in members(data)]


def test_called_again_it_has_nothing_to_do(tmp_path):
    first = shards.create(Mixed(), tmp_path, maxsize="40KB")
    before = digests(tmp_path)
    again = shards.create(Mixed(), tmp_path, maxsize="40KB")
    assert (again.shards_found, again.samples, again.generation) == (first.shards, 300, 1)
    assert digests(tmp_path) == before


@pytest.mark.parametrize("lost", [("index.swift",), ("index-000001.swift", "index.swift"), ("shard-000003.tar",)])
def test_what_an_ended_call_has_not_made_is_made(tmp_path, lost):
    shards.create(Mixed(), tmp_path, maxsize="40KB")
    before = digests(tmp_path)
    for name in {*lost, *(before if "shard-000003.tar" in lost else ())} - {"shard-000000.tar", "shard-000001.tar"}:
        if name in lost or name.startswith("index"):
            (tmp_path / name).unlink()
    again = shards.create(Mixed(), tmp_path, maxsize="40KB")
    assert again.shards_found == (3 if "shard-000003.tar" in lost else again.shards)
    assert digests(tmp_path) == before


def test_another_set_is_not_touched_unless_it_is_to_be(tmp_path):
    shards.create(Mixed(), tmp_path)
    before = digests(tmp_path)
    with pytest.raises(ShardError, match="another set"):
        shards.create(Mixed(), tmp_path, seed=1)
    assert digests(tmp_path) == before
    (tmp_path / "notes.txt").write_text("the user's")
    shards.create(Mixed(200), tmp_path, seed=1, overwrite=True)
    assert len(read_all(tmp_path)) == 200
    assert (tmp_path / "notes.txt").exists()


def test_shards_of_another_making_without_a_catalog_are_not_gone_on_with(tmp_path):
    shards.create(Mixed(), tmp_path)
    for path in tmp_path.glob("index*"):
        path.unlink()
    with pytest.raises(ShardError, match="another making"):
        shards.create(Mixed(), tmp_path, maxsize="1MB")


def test_samples_are_appended_as_a_generation(tmp_path):
    shards.create(Mixed(100), tmp_path, maxcount=40)
    before = digests(tmp_path)
    for _ in range(2):  # the second call finds that it was done
        added = shards.create(Mixed(50), tmp_path, maxcount=40, key=None, append=True, fields={"b.txt": "text"})
        assert added.generation == 2
    assert len(shards.read_catalog(shards.store_at(tmp_path)).rows) == 5
    newest, first = (shards.read_catalog(shards.store_at(tmp_path), generation) for generation in (2, 1))
    assert (newest.samples, first.samples, newest.uuid) == (150, 100, first.uuid)
    assert set(newest.meta["fields"]) == {*first.meta["fields"], "b.txt"}
    assert {name: digests(tmp_path)[name] for name in before if name != "index.swift"}.items() <= before.items()
    assert shards.verify(tmp_path) == shards.verify(tmp_path, 1) == []


def test_appending_needs_a_set(tmp_path):
    with pytest.raises(ShardError, match="no set"):
        shards.create(Mixed(), tmp_path, append=True)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::2])
def test_parts_are_one_set_whoever_ends_last(tmp_path, order):
    generations = []
    for part in order:
        with pytest.raises(ShardError, match=r"missing|not complete|no shards"):
            shards.merge(make_folder(tmp_path))
        generations.append(shards.create(Mixed(), tmp_path, maxcount=40, part=(part, 3)).generation)
    assert generations == [None, None, 1]
    whole = tmp_path / "whole"
    shards.create(Mixed(), whole, maxcount=40)
    assert list(read_all(tmp_path)) == list(read_all(whole))
    assert shards.merge(tmp_path).samples == 300


def make_folder(path):
    path.mkdir(exist_ok=True)
    return path


def test_parts_of_other_makings_do_not_become_one_set(tmp_path):
    shards.create(Mixed(), tmp_path, part=(0, 2))
    with pytest.raises(ShardError, match="another making"):
        shards.create(Mixed(), tmp_path, part=(1, 2), seed=5)


def test_more_parts_than_samples_are_a_set(tmp_path):
    for part in range(5):
        shards.create(Mixed(3), tmp_path, part=(part, 5))
    assert len(read_all(tmp_path)) == 3


def test_tuples_and_single_values_are_named_by_what_they_are(tmp_path):
    pairs = [(np.full((4, 4, 3), i, np.uint8), i) for i in range(5)]
    shards.create(pairs, tmp_path / "pairs")
    assert set(read_all(tmp_path / "pairs")["000000003"]) == {"png", "cls"}
    shards.create(pairs, tmp_path / "named", fields={"x.npy": 0, "y": 1})
    assert set(read_all(tmp_path / "named")["000000003"]) == {"x.npy", "y.cls"}
    shards.create([Point(0.5, 2)], tmp_path / "points")
    assert read_all(tmp_path / "points")["000000000"] == {"x.json": b"0.5", "label.cls": b"2"}
    shards.create(["a", "b"], tmp_path / "texts")
    assert read_all(tmp_path / "texts")["000000001"] == {"txt": b"b"}


def test_keys_are_the_datasets_own_where_it_has_some(tmp_path):
    samples = [{"__key__": f"a/{i}", "id": f"b{i}", "txt": "x"} for i in range(4)]
    shards.create(samples, tmp_path / "a")
    assert sorted(read_all(tmp_path / "a")) == ["a/0", "a/1", "a/2", "a/3"]
    shards.create(samples, tmp_path / "b", key="id")
    assert min(read_all(tmp_path / "b").items()) == ("b0", {"txt": b"x"})


def test_an_iterable_is_written_as_it_comes(tmp_path):
    for _ in range(2):
        created = shards.create((Mixed()[i] for i in range(100)), tmp_path, shuffle=False, maxcount=30)
        assert (created.samples, created.shards) == (100, 4)
    assert list(read_all(tmp_path)) == [f"{i:09d}" for i in range(100)]


def test_an_iterable_is_gone_on_with(tmp_path):
    for name in "ab":
        shards.create((Mixed()[i] for i in range(100)), tmp_path / name, shuffle=False, maxcount=30)
        if name == "a":
            for path in [*(tmp_path / "a").glob("index*"), tmp_path / "a" / "shard-000002.tar"]:
                path.unlink()
    again = shards.create((Mixed()[i] for i in range(100)), tmp_path / "a", shuffle=False, maxcount=30)
    assert again.shards_found == 2
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_who_reads_the_source_by_others_means_gives_its_samples(tmp_path):
    asked = []

    def read(indices):
        asked.append(len(indices))
        return [Mixed()[index] for index in indices.block(0, len(indices)).tolist()]

    shards.create(Mixed(), tmp_path / "a", read=read)
    shards.create(Mixed(), tmp_path / "b")
    assert asked == [300]
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_a_source_that_ends_too_early_is_no_set(tmp_path):
    with pytest.raises(ShardError, match="too early"):
        shards.create(Mixed(), tmp_path, read=lambda indices: [Mixed()[i] for i in indices[:10]])
    assert not list(tmp_path.glob("index*"))


def test_progress_is_told(tmp_path, monkeypatch):
    told = []
    now = iter(range(10_000))
    monkeypatch.setattr(creating.time, "monotonic", lambda: next(now) / 1000)  # asked once for each sample
    shards.create(Mixed(600), tmp_path, maxcount=100, progress=lambda p: told.append((p.samples, p.total, p.shards)))
    assert told[0] == (0, 600, 0)
    assert told[-1] == (600, 600, 6)
    assert told == sorted(told)
    assert len(told) == 7


def test_a_sample_that_is_too_large_has_a_shard_of_its_own(tmp_path):
    samples = [{"bin": bytes(100)}, {"bin": bytes(50_000)}, {"bin": bytes(50_000)}, {"bin": bytes(100)}]
    with pytest.warns(RuntimeWarning, match="more than maxsize") as warned:
        assert shards.create(samples, tmp_path, maxsize=10_000, shuffle=False).shards == 4
    assert len(warned) == 1


def test_an_error_of_the_dataset_leaves_whole_shards_and_says_so_itself(tmp_path):
    class Breaks(Mixed):
        def __getitem__(self, index):
            if index == 250:
                raise OSError("the disk")
            return super().__getitem__(index)

    with pytest.raises(OSError, match="the disk"):
        shards.create(Breaks(), tmp_path, shuffle=False, maxcount=100)
    assert sorted(os.listdir(tmp_path)) == ["shard-000000.tar", "shard-000001.tar"]


BAD = {
    "no_fields": {},
    "all_none": {"a": None},
    "field_is_a_path": {"a/b": b""},
    "no_value_for_it": {"a": object()},
    "key_with_a_dot": {"__key__": "a.b", "a": b""},
    "key_up": {"__key__": "../b", "a": b""},
    "key_hidden": {"__key__": "__a__/b", "a": b""},
    "key_is_a_number": {"__key__": 5, "a": b""},
    "two_that_become_one": {"label": 1, "label.cls": 2},
    "too_many_fields": {f"f{i}": b"" for i in range(65)},
}


@pytest.mark.parametrize("name", BAD)
def test_a_sample_that_cannot_be_written_is_named(tmp_path, name):
    with pytest.raises(ShardError) as caught:
        shards.create([{"a": b""}, BAD[name]], tmp_path, shuffle=False)
    assert os.listdir(tmp_path) == []
    assert caught.value.key is not None


def test_a_key_twice_is_refused(tmp_path):
    with pytest.raises(ShardError, match="one key"):
        shards.create([{"__key__": "a", "b": b""}] * 2, tmp_path)


ARGUMENTS = [
    {"maxsize": "64 pounds"}, {"maxsize": 10}, {"maxsize": True}, {"maxcount": 0}, {"maxcount": "5"}, {"seed": -1},
    {"part": (3, 3)}, {"part": (1,)}, {"part": (0.5, 2)}, {"quality": 101}, {"fields": {}},
    {"workers": 3}, {"append": True, "overwrite": True}, {"append": True, "part": (0, 2)},
]  # fmt: skip


@pytest.mark.parametrize("given", ARGUMENTS, ids=str)
def test_an_argument_that_is_wrong_is_refused_before_anything_is_made(tmp_path, given):
    with pytest.raises(ConfigError):
        shards.create(Mixed(), tmp_path / "new", **given)
    assert not (tmp_path / "new").exists()


def test_what_has_no_indices_cannot_be_shuffled(tmp_path):
    with pytest.raises(ConfigError, match="shuffle=False"):
        shards.create(iter(Mixed()), tmp_path)


def test_nothing_is_no_set(tmp_path):
    with pytest.raises(ShardError, match="no samples"):
        shards.create([], tmp_path)


def test_another_writers_shard_of_the_same_bytes_is_taken(tmp_path, monkeypatch):
    """Two writers of one set: each finds what the other has put there."""
    from swift_loader.shards.creating import _Writing

    shards.create(Mixed(), tmp_path, maxsize="40KB")
    before = digests(tmp_path)
    for path in tmp_path.glob("index*"):
        path.unlink()
    monkeypatch.setattr(_Writing, "_find_shards", lambda self: None)
    assert shards.create(Mixed(), tmp_path, maxsize="40KB").shards_found == 0
    assert digests(tmp_path) == before


def test_without_xxhash_it_says_what_to_install():
    script = "import sys; sys.modules['xxhash'] = None\nfrom swift_loader.shards import create"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'swift-loader[shards]'" in done.stderr.splitlines()[-1]


def test_a_shard_says_itself_what_it_is(tmp_path):
    shards.create(Mixed(), tmp_path, maxsize="40KB")
    store = shards.store_at(tmp_path)
    catalog = shards.read_catalog(store)
    for number in range(len(catalog.rows)):
        shard = catalog.shard(number)
        assert describe(store, shard.name, shard.object_nbytes).shard == shard
