"""Arrays of a batch come out of all its shards at once; what is not as it should be is left to who says what it is."""

import os
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


def test_shards_that_are_known_are_not_learned_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_MOST_KNOWN", 9)
    dataset = ShardDataset(folder, FIELDS)
    for _ in range(3):
        dataset.read_into(range(60), empty(60))
    held = dataset._together._held
    assert [shard.name for shard in held] == [f"shard-{number:06d}.tar" for number in range(9)]
    dataset.read_into([8, 30], empty(2))
    assert dataset._together._held is held


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


@pytest.mark.slow
@pytest.mark.parametrize("form", [{}, {"rows": True}], ids=["members", "rows"])
def test_of_100_000_flipped_bits_in_what_is_delivered_none_is_delivered(tmp_path: Path, form: Any) -> None:
    samples = [{"x.npy": np.full((4, 3), at, np.float32), "y.npy": np.full(900, at)} for at in range(60)]
    create(samples, tmp_path, maxcount=9, **form)
    dataset = ShardDataset(tmp_path, ("x.npy", "y.npy"))
    draw, delivered = np.random.default_rng(0), 0
    for index in draw.integers(0, len(samples), 50_000).tolist():
        shard, number = dataset._reading.found([index])[0][:2]
        offset, nbytes, _ = _place(shard.table, int(number[0]), int(draw.integers(2)))
        at, bit = offset + int(draw.integers(nbytes)), 1 << int(draw.integers(8))
        file = os.open(tmp_path / shard.name, os.O_RDWR)
        byte = os.pread(file, 1, at)[0]
        os.pwrite(file, bytes([byte ^ bit]), at)
        try:
            if bit & 0x55:
                dataset[index]
            else:
                dataset.read_into([index, 1], (np.zeros((2, 4, 3), np.float32), np.zeros((2, 900), int)))
            delivered += 1
        except ShardError:
            pass
        os.pwrite(file, bytes([byte]), at)
        os.close(file)
    assert delivered == 0


def _place(table: Any, number: int, field: int) -> Any:
    if table.rows is not None:
        return table.rows.offset + number * table.rows.nbytes, table.rows.nbytes, None
    return table.entries[number, field].tolist()
