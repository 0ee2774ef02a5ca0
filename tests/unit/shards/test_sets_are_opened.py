"""Catalogs and tables out of a folder, and what a shard says of itself."""

import pytest

from swift_loader.errors import ShardError
from swift_loader.shards import catalog
from swift_loader.shards.folder import Folder
from swift_loader.shards.opening import describe, newest_generation, read_catalog, read_table
from tests.unit.shards.made import shard

SAMPLES = [(f"k{i}", {"jpg": bytes([i]) * (i * 100 + 1), "txt": b"t"}) for i in range(9)]


@pytest.fixture
def folder(tmp_path):
    there = Folder(tmp_path)
    (tmp_path / "a.tar").write_bytes(shard(SAMPLES, total=9))
    (tmp_path / "b.tar").write_bytes(shard([(f"{k}{'x' * 900}", v) for k, v in SAMPLES], position=9))
    lines = [describe(there, name, nbytes).shard for name, nbytes in list(there.listed())]
    for name in ("index.swift", "index-000001.swift"):
        (tmp_path / name).write_bytes(catalog.write(lines))
    (tmp_path / "index-000007.swift").write_bytes(catalog.write(lines, generation=7))
    (tmp_path / "index-7.swift").write_bytes(b"not ours")
    return there


def test_a_set_is_opened_and_its_samples_are_there(folder):
    found = read_catalog(folder)
    assert (found.samples, found.name(1)) == (18, "b.tar")
    for number in (0, 1):
        line = found.shard(number)
        table = read_table(folder, line)
        offset, nbytes, _ = table.entries[3, table.field_numbers["jpg"]].tolist()
        assert folder.read(line.name, offset, nbytes) == SAMPLES[3][1]["jpg"]
        assert table.key(3).startswith("k3")


def test_generations_are_named(folder):
    assert newest_generation(folder) == 7
    assert read_catalog(folder, 7).generation == 7
    (folder.path / "index-000002.swift").write_bytes((folder.path / "index-000007.swift").read_bytes())
    with pytest.raises(ShardError, match="another generation"):
        read_catalog(folder, 2)
    with pytest.raises(FileNotFoundError):
        read_catalog(folder, 3)


def test_a_table_that_lies_before_the_suffix_is_read_too(folder, monkeypatch):
    from swift_loader.shards import opening

    whole = describe(folder, "b.tar", folder.nbytes("b.tar"))
    monkeypatch.setattr(opening, "SUFFIX_NBYTES", 2048)
    assert describe(folder, "b.tar", folder.nbytes("b.tar")).shard == whole.shard


def test_a_shard_that_was_replaced_is_seen(folder):
    line = read_catalog(folder).shard(0)
    (folder.path / "a.tar").write_bytes((folder.path / "b.tar").read_bytes())
    with pytest.raises(ShardError) as caught:
        read_table(folder, line)
    assert (caught.value.shard, caught.value.set) == ("a.tar", folder.where)


def test_each_cut_of_a_shard_is_seen(folder):
    data = (folder.path / "a.tar").read_bytes()
    for end in {cut + d for cut in range(0, len(data), 512) for d in (-1, 0, 1)} - {-1, len(data)}:
        (folder.path / "a.tar").write_bytes(data[:end])
        with pytest.raises(ShardError):
            describe(folder, "a.tar", end)
