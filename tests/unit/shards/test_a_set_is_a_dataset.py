"""Any sample of a set by its index, in the form that was asked for, checked."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.errors import ConfigError, DataError, ShardError
from swift_loader.shards import ShardDataset
from tests.unit.shards.sets_made import FIELDS, npy, sample, write_set


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_set(tmp_path_factory.mktemp("set"))


def test_a_sample_is_a_dict_of_its_fields(folder: Path) -> None:
    dataset = ShardDataset(folder)
    assert len(dataset) == 23
    found = dataset[8]
    assert list(found) == ["cls", "json", "png", "txt", "x.npy"]
    assert (found["cls"], found["json"], found["txt"]) == (8, {"number": 8}, "text 8")
    assert found["png"].getpixel((0, 0)) == (8, 7, 9)
    np.testing.assert_array_equal(found["x.npy"], np.full((2, 3), 8, np.float32))
    assert "txt" not in dataset[4]


def test_or_a_tuple_or_one_of_them_alone(folder: Path) -> None:
    assert ShardDataset(folder, ("cls", "txt;json", "__key__"))[4] == (4, {"number": 4}, "000000004")
    assert ShardDataset(folder, "txt")[5] == "text 5"
    assert ShardDataset(folder, ("jpg;png", "cls"), transform=lambda one: (one[0].size, one[1]))[21] == ((4, 3), 1)
    assert ShardDataset(folder, "png", decode="rgb8")[3][0, 0].tolist() == [3, 7, 9]
    assert ShardDataset(folder, "png", decode=None)[3] == sample(3)["png"]


@given(indices=st.lists(st.integers(0, 22), max_size=40))
def test_many_at_once_are_what_each_is_alone(folder: Path, indices: list[int]) -> None:
    dataset = ShardDataset(folder, ("json", "cls"))
    assert dataset.__getitems__(indices) == [({"number": at}, at % 10) for at in indices]


def test_indices_are_those_of_a_list(folder: Path) -> None:
    dataset = ShardDataset(folder, "json")
    assert dataset[-1] == dataset[np.int64(22)] == {"number": 22}
    for index in (23, -24):
        with pytest.raises(IndexError, match=f"no sample {index}"):
            dataset[index]
        with pytest.raises(IndexError, match=f"no sample {index}"):
            dataset.__getitems__([0, index])
    assert dataset.__getitems__([-1, 0, -23]) == [dataset[22], dataset[0], dataset[0]]
    with pytest.raises(TypeError):
        dataset["a"]  # type: ignore[index]


@given(indices=st.lists(st.integers(0, 22), min_size=1, max_size=40))
def test_numbers_and_arrays_go_straight_to_their_rows(folder: Path, indices: list[int]) -> None:
    dataset = ShardDataset(folder, ("x.npy", "cls"))
    x, cls = np.zeros((len(indices), 2, 3), np.float32), np.zeros(len(indices), np.int64)
    dataset.read_into(indices, (x, cls))
    for row, index in enumerate(indices):
        np.testing.assert_array_equal(x[row], dataset[index][0])
        assert cls[row] == dataset[index][1]


@pytest.mark.parametrize(("fields", "transform"), [("png", None), (("x.npy", "txt"), None), ("cls", abs), (None, None)])
def test_what_has_no_rows_does_not_pretend_to(folder: Path, fields: Any, transform: Any) -> None:
    assert not hasattr(ShardDataset(folder, fields, transform=transform), "read_into")


def test_keys_and_columns_are_read_without_samples(folder: Path) -> None:
    dataset = ShardDataset(folder)
    assert dataset.key(9) == "000000009"
    assert list(dataset.keys()) == [f"{at:09d}" for at in range(23)]
    assert dataset.column("cls").tolist() == [at % 10 for at in range(23)]
    assert dataset.fields == [field.name for field in FIELDS]
    with pytest.raises(ConfigError, match=r"no column 'png': there is cls"):
        dataset.column("png")


def test_samples_are_picked_by_their_columns(folder: Path) -> None:
    dataset = ShardDataset(folder, ("json", "cls"))
    chosen = dataset.where(cls=[3, 7])
    assert chosen.indices.tolist() == [3, 7, 13, 17]
    assert [one["number"] for one, _ in chosen.__getitems__([0, 3])] == [3, 17]
    assert (len(chosen), chosen[-1][1], chosen.key(1)) == (4, 7, "000000007")
    assert chosen.column("cls").tolist() == [3, 7, 3, 7]
    assert chosen.where(cls=7).indices.tolist() == [7, 17]
    assert len(dataset.where(cls=lambda column: column > 7)) == 4
    assert sum(chosen.runs()) == 4
    assert len(chosen.runs()) == len(dataset.runs())
    assert chosen.__getitems__([-1, 0]) == [chosen[3], chosen[0]]
    assert chosen.key(-1) == chosen.key(3)
    for ask in (chosen.__getitem__, chosen.key, lambda index: chosen.__getitems__([index])):
        with pytest.raises(IndexError, match="no sample 4"):
            ask(4)
    assert not hasattr(chosen, "read_into")
    rows = np.zeros(2, np.int64)
    ShardDataset(folder, "cls").where(cls=[3, 7]).read_into([3, 0], rows)
    assert rows.tolist() == [7, 3]


def test_neighbours_that_are_cheap_together_are_told(folder: Path) -> None:
    assert sum(ShardDataset(folder).runs()) == 23
    assert ShardDataset(folder).runs().tolist() == [7, 7, 7, 2]


def test_it_travels_small_and_reads_on(folder: Path) -> None:
    dataset = ShardDataset(folder, ("json", "cls"))
    dataset[3]
    data = pickle.dumps(dataset)
    assert len(data) < 1000
    assert pickle.loads(data)[11] == dataset[11]


@pytest.mark.parametrize("pattern", ["shard-{000000..000003}.tar", "shard-*.tar", "shard-00000[0-3].tar"])
def test_shards_without_a_catalog_are_named_by_a_pattern(tmp_path: Path, pattern: str) -> None:
    folder = write_set(tmp_path / "a", with_catalog=False)
    dataset = ShardDataset(f"{folder}/{pattern}", ("json", "cls"))
    assert [dataset[at][0]["number"] for at in range(len(dataset))] == list(range(23))
    assert pickle.loads(pickle.dumps(dataset))[22] == dataset[22]


def test_a_list_in_braces_may_name_folders(tmp_path: Path) -> None:
    for name in "ab":
        write_set(tmp_path / name, count=3, with_catalog=False)
    dataset = ShardDataset(str(tmp_path / "{b,a}" / "shard-000000.tar"), "json")
    assert [dataset[at]["number"] for at in range(6)] == [0, 1, 2] * 2


@pytest.mark.parametrize(("url", "says"), [
    ("nowhere", "no folder"), ("", "no index.swift"), ("shard-9*.tar", "no file"), ("shard-{7..8}.tar", "no shard"),
    ("x.tar", "no shard"), ("ftp://bucket/a", "s3"),
])  # fmt: skip
def test_a_set_that_is_not_there(tmp_path: Path, url: str, says: str) -> None:
    write_set(tmp_path, with_catalog=False)
    with pytest.raises(ConfigError, match=says):
        ShardDataset(url if "://" in url else tmp_path / url)


def test_a_generation_that_is_not_there(folder: Path) -> None:
    assert ShardDataset(folder, generation=1).generation == 1
    with pytest.raises(ConfigError, match="no generation 2: the newest is 1"):
        ShardDataset(folder, generation=2)


@pytest.mark.parametrize("fields", [(), ("cls", ""), 7, ("cls", 3)])
def test_fields_that_are_no_names_are_refused(folder: Path, fields: Any) -> None:
    with pytest.raises((ConfigError, TypeError)):
        ShardDataset(folder, fields)


def test_a_field_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ShardError, match=r"'wav'.*cls, json, png"):
        ShardDataset(folder, "wav")[0]
    with pytest.raises(ShardError, match="no field 'txt'") as caught:
        ShardDataset(folder, "txt")[14]
    assert (caught.value.key, caught.value.shard) == ("000000014", "shard-000002.tar")


def flipped(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ (1 << bit)]))


@pytest.mark.parametrize("way", ["one by one", "into rows", "header of the array"])
def test_a_damaged_sample_is_named_and_not_delivered(tmp_path: Path, way: str) -> None:
    write_set(tmp_path)
    dataset = ShardDataset(tmp_path, "x.npy")
    offset = int(dataset._reading.shards[1].table.entries[2, 4, 0])
    flipped(tmp_path / "shard-000001.tar", offset + (20 if way == "header of the array" else 130))
    rows = np.zeros((2, 2, 3), np.float32)
    read = (lambda: dataset[9]) if way == "one by one" else (lambda: dataset.read_into([0, 9], rows))
    with pytest.raises(ShardError, match="damaged") as caught:
        read()
    error = caught.value
    assert (error.set, error.shard, error.offset, error.key) == (str(tmp_path), "shard-000001.tar", offset, "000000009")
    np.testing.assert_array_equal(dataset[8], np.full((2, 3), 8, np.float32))


def test_what_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    write_set(tmp_path, 3, make=lambda at: {**sample(at), "json": b"{"})
    with pytest.raises(DataError, match=r"'000000001' of .*shard-000000\.tar cannot be decoded"):
        ShardDataset(tmp_path, "json")[1]


def test_a_shard_that_has_changed_or_gone_is_told(tmp_path: Path) -> None:
    write_set(tmp_path)
    dataset = ShardDataset(tmp_path, "json")
    (tmp_path / "shard-000000.tar").unlink()
    with pytest.raises(ShardError, match="cannot be read") as caught:
        dataset[0]
    assert caught.value.shard == "shard-000000.tar"
    with (tmp_path / "shard-000001.tar").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ShardError, match="not the one that is in the catalog"):
        dataset[7]


def test_a_shard_that_is_cut_under_a_reader_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swift_loader.host.mapping._BELIEVED_S", -1.0)
    write_set(tmp_path)
    dataset = ShardDataset(tmp_path, ("x.npy", "cls"))
    dataset[7]
    os.truncate(tmp_path / "shard-000001.tar", 600)
    with pytest.raises(ShardError, match="shorter"):
        dataset[13]
    with pytest.raises(ShardError, match="shorter"):
        dataset.read_into([13], (np.zeros((1, 2, 3), np.float32), np.zeros(1, np.int64)))


def test_shards_whose_arrays_differ_are_told(tmp_path: Path) -> None:
    write_set(tmp_path, 7)
    other = (*FIELDS[:4], type(FIELDS[4])("x.npy", "<f8", (2, 3), 128))
    write_set(tmp_path / "b", 7, make=lambda at: {**sample(at), "x.npy": npy(np.full((2, 3), float(at)))}, fields=other)
    dataset = ShardDataset(f"{tmp_path}/{{.,b}}/shard-000000.tar", ("x.npy",))
    with pytest.raises(ShardError, match=r"<f8 \(2, 3\) in this shard"):
        dataset.read_into([0, 8], (np.zeros((2, 2, 3), np.float32),))


def test_flipped_bits_are_never_delivered(tmp_path: Path) -> None:
    write_set(tmp_path, 6, per_shard=6)
    path = tmp_path / "shard-000000.tar"
    good = path.read_bytes()
    expected = [ShardDataset(tmp_path, decode=None)[at] for at in range(6)]
    rng = np.random.default_rng(0)
    wrong = refused = 0
    for at in rng.integers(0, len(good), 200).tolist():
        flipped(path, at, at % 8)
        try:
            dataset = ShardDataset(tmp_path, decode=None)
            found = [dataset[number] for number in range(6)]
            wrong += any(
                not all(np.array_equal(left[name], right[name]) for name in right)
                for left, right in zip(found, expected, strict=True)
            )
        except ShardError:
            refused += 1
        path.write_bytes(good)
    assert wrong == 0
    assert refused > 10
