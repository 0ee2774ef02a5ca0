"""Arrays of a batch come out of all its shards at once; what is not as it should be is left to who says what it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swift_loader.errors import ShardError
from swift_loader.shards import ShardDataset, create, together

SHAPES = {"small.npy": (5, 3), "large.npy": (70, 80), "one.npy": ()}
FIELDS = (*SHAPES, "cls", "weight.json")


class Source:
    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> dict[str, Any]:
        arrays = {name: np.full(shape, index, np.float32) for name, shape in SHAPES.items()}
        return {**arrays, "cls": index, "weight": index / 3, "text": "x" * index}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert create(Source(), tmp_path, maxcount=7).shards == 9
    return tmp_path


def empty(count: int) -> tuple[Any, ...]:
    arrays = [np.zeros((count, *shape), np.float32) for shape in SHAPES.values()]
    return (*arrays, np.zeros(count, np.int64), np.zeros(count))


@pytest.mark.parametrize("known", [128, 9, 4, 1])
def test_all_of_it_is_what_each_sample_is(folder: Path, known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_MOST_KNOWN", known)
    dataset = ShardDataset(folder, FIELDS)
    for indices in (np.arange(60), np.arange(60)[::-7], [3, 3, 3], [59], np.arange(10, 20), np.arange(60)):
        rows = empty(len(indices))
        dataset.read_into(indices, rows)
        for row, index in enumerate(indices):
            for part, column in zip(dataset[index], rows, strict=True):
                np.testing.assert_array_equal(part, column[row])


@pytest.mark.parametrize("believed_s", [1.0, -1.0])
def test_whatever_is_right_is_read_at_once(folder: Path, believed_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swift_loader.host.mapping._BELIEVED_S", believed_s)
    dataset = ShardDataset(folder, FIELDS)
    assert dataset._together.read_into(*dataset._reading.located(range(60)), empty(60))


@pytest.mark.parametrize("field", ["small.npy", "large.npy"])
@pytest.mark.parametrize("at", [3, 130], ids=["in the head", "in the array"])
def test_damage_is_never_taken_for_right(folder: Path, field: str, at: int) -> None:
    dataset = ShardDataset(folder, (field, "cls"))
    shard = dataset._reading.shards[4]
    offset = int(shard.table.entries[2, shard.table.field_numbers[field], 0])
    data = bytearray((folder / shard.name).read_bytes())
    data[offset + at] ^= 1
    (folder / shard.name).write_bytes(data)
    indices = [1, 4 * 7 + 2, 50]
    rows = (np.zeros((3, *SHAPES[field]), np.float32), np.zeros(3, np.int64))
    assert not dataset._together.read_into(*dataset._reading.located(indices), rows)
    with pytest.raises(ShardError, match="damaged") as caught:
        dataset.read_into(indices, rows)
    assert (caught.value.shard, caught.value.offset) == (shard.name, offset)


def test_a_set_some_of_whose_shards_are_others_is_read_shard_by_shard(tmp_path: Path) -> None:
    create([{"x.npy": np.float32(at), "score": at} for at in range(9)], tmp_path, maxcount=9, shuffle=False)
    create([{"x.npy": np.float32(at), "score": at / 2} for at in range(9)], tmp_path, append=True, shuffle=False)
    dataset = ShardDataset(tmp_path, ("x.npy", "score.cls;score.json"))
    assert dataset[8] == (8, 8)
    alone = ShardDataset(tmp_path, ("x.npy",))
    rows = (np.zeros(3, np.float32),)
    alone.read_into([1, 8, 17], rows)
    assert rows[0].tolist() == [1, 8, 8]
