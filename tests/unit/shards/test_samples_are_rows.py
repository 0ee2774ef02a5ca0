"""Samples as rows, without a header for each; and numbers that stand in the tables alone."""

import json
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset

from swift_loader.errors import ShardError
from swift_loader.shards import ShardDataset, create, verify
from swift_loader.shards.copying import samples_of
from tests.unit.shards.sources import digests

FIELDS = ("x.npy", "cls", "y.npy", "score.json", "__key__")
FORMS: list[dict[str, Any]] = [{"rows": True}, {"rows": True, "shuffle": False}, {"small_members": False}]


class Source:
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "x.npy": np.full((4, 3), index, np.float32), "y.npy": np.full(5, index, np.int16),
            "cls": index % 7, "score": index / 3,
        }  # fmt: skip


@pytest.fixture(params=FORMS, ids=["rows", "rows in order", "numbers in the table"])
def form(request: pytest.FixtureRequest) -> Any:
    return request.param


def is_right(sample: Any) -> bool:
    x, label, y, score, key = sample
    index = int(key)
    arrays = x.shape == (4, 3) and x.dtype == np.float32 and (x == index).all() and (y == index).all()
    return bool(arrays and (label, score) == (index % 7, index / 3))


def test_samples_are_what_they_were(tmp_path: Path, form: Any) -> None:
    assert create(Source(), tmp_path, maxsize="9KB", **form).shards > 2
    dataset = ShardDataset(tmp_path, FIELDS)
    assert sorted(dataset.keys()) == [f"{index:09d}" for index in range(100)]
    assert all(is_right(dataset[index]) for index in range(100))
    assert verify(tmp_path) == []
    assert max(path.stat().st_size for path in tmp_path.glob("*.tar")) <= 9000


@pytest.mark.parametrize("fields", [FIELDS[:4], ("y.npy", "cls"), ("x.npy",), ("cls", "score.json")])
def test_they_go_straight_to_their_rows(tmp_path: Path, form: Any, fields: tuple[str, ...]) -> None:
    create(Source(), tmp_path, maxcount=30, **form)
    dataset, indices = ShardDataset(tmp_path, fields), [5, 99, 0, 77, 6]
    empty = {"x.npy": np.zeros((5, 4, 3), np.float32), "y.npy": np.zeros((5, 5), np.int16)}
    empty |= {"cls": np.zeros(5, np.int64), "score.json": np.zeros(5)}
    for read in (dataset.read_into, lambda asked, rows: read_by_shards(dataset, asked, rows)):
        rows = tuple(np.zeros_like(empty[name]) for name in fields)
        read(indices, rows)
        for row, index in enumerate(indices):
            for part, column in zip(dataset[index], rows, strict=True):
                np.testing.assert_array_equal(part, column[row])


def read_by_shards(dataset: ShardDataset, indices: Any, rows: Any) -> None:
    for shard, entries, at in dataset._reading.brought(indices):
        dataset._wishes.of(shard.table).read_into(shard, entries, rows, at)


def test_the_same_samples_are_the_same_bytes_and_a_call_that_was_ended_goes_on(tmp_path: Path, form: Any) -> None:
    create(Source(), tmp_path / "a", maxcount=30, **form)
    create(Source(), tmp_path / "b", maxcount=30, **form)
    for lost in ("index.swift", "index-000001.swift", "shard-000002.tar"):
        (tmp_path / "b" / lost).unlink()
    assert create(Source(), tmp_path / "b", maxcount=30, **form).shards_found == 2
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_rows_are_one_member_that_numpy_reads(tmp_path: Path) -> None:
    create(Source(), tmp_path / "set", rows=True, shuffle=False, maxcount=60)
    with tarfile.open(tmp_path / "set" / "shard-000001.tar") as archive:
        assert archive.getnames() == ["000000060.rows.npy", "__swift__/table"]
        archive.extract("000000060.rows.npy", tmp_path, filter="data")
    rows = np.load(tmp_path / "000000060.rows.npy")
    assert (len(rows), rows["y.npy"][3].tolist()) == (40, [63] * 5)
    create([{"x.npy": np.arange(3) + at} for at in range(4)], tmp_path / "one", rows=True, shuffle=False)
    files = str(tmp_path / "one" / "shard-000000.tar")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (sample,) = webdataset.WebDataset(files, shardshuffle=False).decode()
    assert sample["x.npy"].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]


def test_numbers_in_the_table_alone_are_no_members(tmp_path: Path) -> None:
    create(Source(), tmp_path, small_members=False, shuffle=False, maxcount=3)
    with tarfile.open(tmp_path / "shard-000000.tar") as archive:
        names = archive.getnames()
    assert names[:3] == ["000000000.x.npy", "000000000.y.npy", "000000001.x.npy"]
    assert ShardDataset(tmp_path, decode="bytes")[4]["score.json"] == json.dumps(4 / 3).encode()
    assert ShardDataset(tmp_path).where(cls=3).indices.tolist() == list(range(3, 100, 7))


def test_a_set_may_be_of_numbers_alone(tmp_path: Path) -> None:
    create([{"cls": at} for at in range(9)], tmp_path, small_members=False, shuffle=False, maxcount=4)
    assert [ShardDataset(tmp_path, "cls")[at] for at in range(9)] == list(range(9))
    assert verify(tmp_path) == []


@pytest.mark.parametrize(
    ("second", "form", "says"),
    [
        ({"x.npy": np.zeros(4), "cls": 1}, {"rows": True}, r"x.npy \(<f8 \(3,\)\).*x.npy \(<f8 \(4,\)\)"),
        ({"x.npy": np.zeros(3)}, {"rows": True}, "alike"),
        ({"x.npy": np.zeros(3), "cls": "one"}, {"rows": True}, "'cls.txt' is neither|'cls' is neither"),
        ({"x.npy": np.zeros(0), "cls": 1}, {"rows": True}, "'x.npy' is neither"),
        ({"x.npy": np.zeros(3)}, {"small_members": False}, "before, cls, and here none"),
        ({"x.npy": np.zeros(3), "cls": 1 << 70}, {"small_members": False}, "before, cls, and here none"),
    ],
)
def test_a_sample_unlike_the_others_is_named(tmp_path: Path, second: Any, form: Any, says: str) -> None:
    samples = [{"x.npy": np.zeros(3), "cls": 1}, second]
    with pytest.raises(ShardError, match=says) as caught:
        create(samples, tmp_path, shuffle=False, **form)
    assert caught.value.key in ("index 1", "000000001")
    assert list(tmp_path.glob("shard-*")) == []


@pytest.mark.parametrize("sample", [{"cls": 1}, {"jpg": b"..."}, {"x": np.zeros((4, 4), np.uint8)}])
def test_what_has_no_arrays_is_no_row(tmp_path: Path, sample: Any) -> None:
    with pytest.raises(ShardError, match="rows are"):
        create([sample], tmp_path, rows=True)


@pytest.mark.parametrize("form", [{"rows": True}, {"small_members": False}])
@pytest.mark.parametrize("samples", [[(np.zeros(3), 1, 2)], [(np.zeros(3), 1), (np.zeros(3), 1, 2)]])
def test_two_numbers_of_one_name_are_refused(tmp_path: Path, form: Any, samples: Any) -> None:
    with pytest.raises(ShardError, match=r"two fields 'cls'|alike"):
        create(samples, tmp_path, shuffle=False, **form)


def test_numbers_that_no_column_holds_are_not_rounded(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="2\\*\\*53"):
        create([{"json": (1 << 53) + 1}, {"json": 0.5}], tmp_path, small_members=False)


def test_each_flipped_bit_of_rows_is_found(tmp_path: Path) -> None:
    create(Source(), tmp_path, rows=True, maxcount=45)
    path = tmp_path / "shard-000001.tar"
    data = path.read_bytes()
    dataset = ShardDataset(tmp_path, FIELDS)
    right = [dataset[index] for index in range(45, 90)]
    for at in np.random.default_rng(0).integers(0, len(data), 60).tolist():
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        assert verify(tmp_path), at
        try:
            found = [ShardDataset(tmp_path, FIELDS)[index] for index in (45, 67, 89)]
        except ShardError:
            continue
        for one, index in zip(found, (0, 22, 44), strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, right[index], strict=True))


def test_rows_and_tars_are_converted_into_each_other(tmp_path: Path) -> None:
    create(Source(), tmp_path / "tar", maxsize="20KB")
    create(samples_of(str(tmp_path / "tar")), tmp_path / "rows", shuffle=False, rows=True, name="x")
    create(samples_of(str(tmp_path / "rows")), tmp_path / "back", shuffle=False, maxsize="20KB", name="x")
    first, last = (ShardDataset(tmp_path / name, decode="bytes") for name in ("tar", "back"))
    assert [first[index] for index in range(100)] == [last[index] for index in range(100)]
