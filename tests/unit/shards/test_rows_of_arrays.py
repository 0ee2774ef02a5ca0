"""Rows of one size in files: what numpy saved and raw numbers are samples, checked where there are checksums."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader import SwiftLoader
from swift_loader.errors import ConfigError, ShardError, SwiftLoaderError
from swift_loader.host import mapping
from swift_loader.shards import ArrayDataset, RawRows, ShardDataset, TokenDataset, index, verify
from tests.unit.shards.attacked import prompt_and_small

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20, dtype=np.int64) * 10
WRITTEN = Path(__file__).parent / "written"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in range(2):
        np.save(tmp_path / f"x-{part}.npy", X[part * 12 : part * 12 + 12])
    np.save(tmp_path / "y.npy", Y)
    X.tofile(tmp_path / "x.bin")
    return tmp_path


def test_a_sample_is_a_row_of_each(folder: Path) -> None:
    dataset = ArrayDataset({"x": f"{folder}/x-*.npy", "y": folder / "y.npy"})
    assert len(dataset) == 20
    sample = dataset[13]
    assert (list(sample), sample["x"].tolist(), sample["y"]) == (["x", "y"], X[13].tolist(), 130)
    assert dataset[-1]["y"] == 190
    pair = ArrayDataset((f"{folder}/x-{{0,1}}.npy", folder / "y.npy"), transform=lambda one: (one[0].sum(), one[1]))
    assert pair[5] == (X[5].sum(), 50)
    assert ArrayDataset(folder / "y.npy")[7] == 70
    assert [one["y"] for one in dataset.__getitems__([-20, 19, -2])] == [0, 190, 180]
    for wrong in (20, -21):
        with pytest.raises(IndexError, match=f"no sample {wrong}"):
            dataset[wrong]
        with pytest.raises(IndexError, match=f"no sample {wrong}"):
            dataset.__getitems__([0, wrong])


def test_raw_numbers_are_told_what_they_are(folder: Path) -> None:
    raw = ArrayDataset(RawRows(folder / "x.bin", "float32", (3,)))
    assert [row.tolist() for row in raw.__getitems__([0, 19])] == [X[0].tolist(), X[19].tolist()]
    assert len(ArrayDataset(RawRows(folder / "x.bin", "<f4", (), offset=4))) == 59
    with pytest.raises(ShardError, match=r"x\.bin: .* no rows of 28 bytes"):
        ArrayDataset(RawRows(folder / "x.bin", "float32", (7,)))
    for dtype, shape in (("object", (3,)), ("nothing", (3,)), ("U4", (3,)), ("f4", (0,)), ("f4", (-1,)), ("f4", "x")):
        with pytest.raises(ConfigError):
            RawRows("x", dtype, shape)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_checked", [False, True])
@settings(deadline=None)
@given(indices=st.lists(st.integers(0, 19), max_size=40))
def test_rows_go_straight_to_their_places(tmp_path_factory: Any, indices: list[int], *, is_checked: bool) -> None:
    folder = tmp_path_factory.getbasetemp() / f"rows{is_checked}"
    if not folder.exists():
        folder.mkdir()
        np.save(folder / "x-0.npy", X[:12])
        np.save(folder / "x-1.npy", X[12:])
        np.save(folder / "y.npy", Y)
        if is_checked:
            index(f"{folder}/x-*.npy")
    dataset = ArrayDataset({"x": f"{folder}/x-*.npy", "y": f"{folder}/y.npy"})
    rows = {"x": np.zeros((len(indices), 3), np.float32), "y": np.zeros(len(indices), np.int64)}
    dataset.read_into(indices, rows)
    np.testing.assert_array_equal(rows["x"], X[indices].reshape(-1, 3))
    np.testing.assert_array_equal(rows["y"], Y[indices])


def test_places_that_do_not_fit_are_refused(folder: Path) -> None:
    dataset = ArrayDataset(folder / "y.npy")
    with pytest.raises(ShardError, match="do not fit"):
        dataset.read_into([1], np.zeros(1, np.int32))
    for wrong in ([-21], [20], [1 << 62]):
        with pytest.raises(IndexError):
            dataset.read_into(wrong, np.zeros(1, np.int64))
    column = np.zeros((20, 2), np.int64)[:, 0]  # not in one piece
    dataset.read_into(range(20), column)
    assert column.tolist() == Y.tolist()
    assert not hasattr(ArrayDataset(folder / "y.npy", transform=int), "read_into")


def test_a_damaged_row_is_found_where_there_are_checksums(folder: Path) -> None:
    index(f"{folder}/x-*.npy")
    index(RawRows(f"{folder}/*.bin", "float32", (3,)))
    for name, at, rows in (
        ("x-1.npy", 128 + 12 * 2, f"{folder}/x-*.npy"),
        ("x.bin", 12 * 14, RawRows(f"{folder}/x.bin", "f4", (3,))),
    ):
        data = bytearray((folder / name).read_bytes())
        data[at] ^= 1
        (folder / name).write_bytes(data)
        dataset = ArrayDataset(rows)
        assert dataset[13].tolist() == X[13].tolist()
        with pytest.raises(ShardError, match=rf"{name}: row (2|14) is damaged"):
            dataset[14]


def test_a_table_of_another_file_is_refused(folder: Path) -> None:
    index(f"{folder}/y.npy")
    np.save(folder / "y.npy", Y.astype(np.int32))
    with pytest.raises(ShardError, match=r"y\.npy: the (table beside it is of another file|samples' part)"):
        ArrayDataset(folder / "y.npy")


def test_a_set_of_rows_has_a_catalog(folder: Path) -> None:
    catalog = index(f"{folder}/x-*.npy", workers=2)
    assert (catalog.samples, index(f"{folder}/x-*.npy").generation) == (20, 1)
    dataset = ShardDataset(folder)
    assert dataset[13]["x"].tolist() == X[13].tolist()
    rows = np.zeros((3, 3), np.float32)
    ShardDataset(folder, "x").read_into([13, 2, 13], rows)
    np.testing.assert_array_equal(rows, X[[13, 2, 13]])
    assert ShardDataset(f"{folder}/x-{{0,1}}.npy", "x")[19].tolist() == X[19].tolist()
    assert verify(folder) == []
    data = bytearray((folder / "x-1.npy").read_bytes())
    data[-1] ^= 1
    (folder / "x-1.npy").write_bytes(data)
    assert [(one.shard, one.offset) for one in verify(folder)] == [("x-1.npy", 128 + 7 * 12)]
    with pytest.raises(ShardError, match="a sample is damaged"):
        dataset[19]


def test_arrays_of_several_lengths_or_kinds_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"different numbers of rows: .*12.*20"):
        ArrayDataset({"x": f"{folder}/x-0.npy", "y": folder / "y.npy"})
    with pytest.raises(ConfigError, match="several kinds"):
        ArrayDataset(f"{folder}/*.npy")
    for nothing in ({}, [], [3], {"x": np.zeros(3)}):
        with pytest.raises(ConfigError, match="arrays are files"):
            ArrayDataset(nothing)  # type: ignore[arg-type]
    for missing in ("nothing.npy", "*.nothing"):
        with pytest.raises(ConfigError, match="there is no file"):
            ArrayDataset(folder / missing)


def test_it_travels_small_and_tells_runs(folder: Path) -> None:
    dataset = ArrayDataset({"x": f"{folder}/x-*.npy"})
    data = pickle.dumps(dataset)
    assert len(data) < 500
    assert pickle.loads(data)[3]["x"].tolist() == X[3].tolist()
    assert dataset.runs().tolist() == [12, 8]


def test_a_loader_reads_rows(folder: Path) -> None:
    dataset = ArrayDataset({"x": f"{folder}/x-*.npy", "y": folder / "y.npy"})
    with SwiftLoader.from_dataset(dataset, 10, nb_consumer=1, worker_per_consumer=0, shuffle=False) as loader:
        batches = list(loader)
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in batches]), X)
    np.testing.assert_array_equal(np.concatenate([batch["y"] for batch in batches]), Y)


def test_a_file_that_has_become_shorter_is_an_error_and_not_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "_BELIEVED_S", -1)
    dataset = ArrayDataset(folder / "y.npy")
    os.truncate(folder / "y.npy", 150)
    with pytest.raises(ShardError, match="cannot be read: the file is shorter"):
        dataset.read_into([19], np.zeros(1, np.int64))


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", npy(np.zeros((2, 3), order="F")), npy(np.array(3)), npy(np.zeros(0)), npy(np.zeros((2, 0))),
        npy(np.array(["a"])), npy(np.zeros(3, "M8[s]")), npy(np.zeros(2, [("a", "i4")])), npy(np.zeros(9))[:-1],
        npy(np.zeros(9)) + b"x", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'shape': (1 << 60,)}",
        npy(np.zeros(3)).replace(b"(3,), }", b"(3**99,)"), npy(np.zeros(3)).replace(b"(3,), }     ", b"(99999999,),"),
    ],
)  # fmt: skip
def test_what_is_no_array_of_rows_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    for call in (ArrayDataset, index):
        with pytest.raises(ShardError, match=r"a\.npy"):
            call(str(tmp_path / "a.npy"))


def test_both_versions_of_numpys_head_are_read(tmp_path: Path) -> None:
    for version in ((1, 0), (2, 0)):
        (tmp_path / "a.npy").write_bytes(npy(X, version))
        assert ArrayDataset(tmp_path / "a.npy")[4].tolist() == X[4].tolist()


@settings(deadline=None)
@given(
    mutations=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 400),
)
def test_s8_whatever_files_of_rows_hold_is_read_or_refused_at_once(
    tmp_path_factory: Any, mutations: Any, cut: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "s8rows"
    folder.mkdir(exist_ok=True)
    path = folder / "a.npy"
    for old in folder.iterdir():
        old.unlink()
    path.write_bytes(npy(X))
    index(str(path))
    for name in ("a.npy", "a.npy.swift"):
        data = bytearray((folder / name).read_bytes())
        for place, value in mutations:
            data[place % len(data)] = value
        if cut % 3 == 0:
            del data[cut:]
        (folder / name).write_bytes(data)
        with prompt_and_small(2), contextlib.suppress(SwiftLoaderError):
            dataset = ArrayDataset(str(path))
            dataset.__getitems__(range(min(len(dataset), 20)))


def test_tokens_that_litdata_wrote_are_windows(tmp_path: Path) -> None:
    dataset = TokenDataset(WRITTEN / "litdata_tokens", length=6)
    every = np.concatenate([np.arange(21), np.arange(21, 35)])
    assert [(x.tolist(), y.tolist()) for x, y in map(dataset.__getitem__, range(len(dataset)))] == [
        (every[a : a + 6].tolist(), every[a + 1 : a + 7].tolist()) for a in (0, 6, 12, 21, 27)
    ]
    with pytest.raises(ConfigError, match="was written for LitData's PyTreeLoader"):
        TokenDataset(WRITTEN / "litdata_flat", length=6)
    with pytest.raises(ConfigError, match=r"no index\.json of LitData's"):
        TokenDataset(WRITTEN / "mds", length=6)
    with pytest.raises(ConfigError, match=r"no index\.json of LitData's"):
        TokenDataset(tmp_path, length=6)
