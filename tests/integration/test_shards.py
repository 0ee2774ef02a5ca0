"""Sets of shards in a loader: all that holds of any dataset holds of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swift_loader import CacheSetting, LayoutError, RotationSetting, ShardError, SwiftLoader
from swift_loader.shards import ImageFolder, ShardDataset, TokenDataset
from swift_loader.testing import Nemesis, differences, record
from tests.loaders import made, started, stream
from tests.slow import slow
from tests.unit.shards.sets_made import FIELDS, npy, sample, write_set
from tests.watching import plain

COUNT = 100
#: What goes to its rows at once, and what is decoded sample by sample.
WAYS = [("x.npy", "cls"), ("json", "png", "cls")]
#: Samples of arrays; and where there is time, of pictures.
one_way = pytest.mark.parametrize("fields", [WAYS[0], slow(WAYS[1])])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_set(tmp_path_factory.mktemp("set"), COUNT, per_shard=17)


def settings(folder: Path, fields: Any) -> dict[str, Any]:
    return {"url": str(folder), "fields": fields, "decode": "rgb8"}


def numbers(batches: list[Any], fields: Any) -> list[int]:
    """Which samples are in these batches."""
    if fields[0] == "x.npy":
        return [int(value[0][0]) for batch in batches for value in batch[0][1]]
    return [value for batch in batches for value in batch[0]["number"][1]]


@one_way
def test_each_sample_comes_once_however_many_workers_there_are(folder: Path, fields: Any) -> None:
    kwargs = settings(folder, fields)
    streams = [stream(ShardDataset, kwargs, epochs=2, worker_per_consumer=count) for count in (0, 1, 3)]
    assert streams[0] == streams[1] == streams[2]
    half = len(streams[0]) // 2
    assert (
        sorted(numbers(streams[0][:half], fields)) == sorted(numbers(streams[0][half:], fields)) == list(range(COUNT))
    )
    assert numbers(streams[0][:half], fields) != numbers(streams[0][half:], fields)


@one_way
def test_consumers_share_the_set(folder: Path, fields: Any) -> None:
    kwargs = settings(folder, fields)
    parts = [stream(ShardDataset, kwargs, consumer=at, nb_consumer=3) for at in range(3)]
    assert len({len(part) for part in parts}) == 1
    assert sorted(numbers([batch for part in parts for batch in part], fields)) == list(range(COUNT))


def test_in_order_it_is_the_set_from_the_first_to_the_last(folder: Path) -> None:
    assert numbers(stream(ShardDataset, settings(folder, WAYS[0]), shuffle=False), WAYS[0]) == list(range(COUNT))


@one_way
def test_it_goes_on_in_the_middle_of_an_epoch(folder: Path, fields: Any) -> None:
    kwargs = settings(folder, fields)
    whole = stream(ShardDataset, kwargs, epochs=2)
    with started(ShardDataset, kwargs) as loader:
        batches = iter(loader)
        first = [plain(next(batches)) for _ in range(5)]
        state = loader.state_dict()
    with made(ShardDataset, kwargs, worker_per_consumer=1) as loader:
        loader.load_state_dict(pickle.loads(pickle.dumps(state)))
        loader.start(0)
        assert first + [plain(batch) for _ in range(2) for batch in loader] == whole


def test_the_same_global_batches_on_any_number_of_consumers(folder: Path) -> None:
    kwargs = settings(folder, WAYS[0])

    def global_batches(consumers: int) -> list[list[int]]:
        size = 8 // consumers
        parts = [
            stream(ShardDataset, kwargs, consumer=at, nb_consumer=consumers, batch_size=size, elastic=True, even="drop")
            for at in range(consumers)
        ]
        return [sorted(numbers(list(step), WAYS[0])) for step in zip(*parts, strict=True)]

    assert global_batches(1) == global_batches(2) == global_batches(4)


@one_way
def test_killed_workers_change_nothing(folder: Path, fields: Any) -> None:
    with started(ShardDataset, settings(folder, fields), batch_size=4, max_attempts=1000) as loader:
        undisturbed = record(loader, epochs=3)
        loader.set_epoch(0)
        nemesis = Nemesis(loader, seed=3)
        disturbed = record(loader, epochs=3, meanwhile=lambda step: step % 6 or nemesis.strike())
    assert nemesis.strikes > 5
    assert not differences(disturbed, undisturbed)


def test_samples_are_kept_and_repeated_as_those_of_any_dataset(folder: Path, tmp_path: Path) -> None:
    kwargs = settings(folder, WAYS[1])
    plainly = stream(ShardDataset, kwargs, epochs=2)
    kept = CacheSetting(str(tmp_path / "kept"))
    assert stream(ShardDataset, kwargs, epochs=2, cache_setting=kept) == plainly
    assert stream(ShardDataset, kwargs, epochs=2, cache_setting=kept) == plainly
    repeated = stream(ShardDataset, kwargs, rotation_setting=RotationSetting("memory", 2))
    assert sorted(numbers(repeated, WAYS[1])) == sorted(2 * list(range(COUNT)))


def test_a_damaged_sample_ends_the_epoch_with_its_place_or_is_left_out(tmp_path: Path) -> None:
    write_set(tmp_path, 20, per_shard=10)
    offset = int(ShardDataset(tmp_path)._reading.shards[1].table.entries[3, 4, 0])
    with (tmp_path / "shard-000001.tar").open("r+b") as file:
        file.seek(offset + 130)
        file.write(b"\xff")
    kwargs = settings(tmp_path, ("x.npy", "cls"))
    with (
        started(ShardDataset, kwargs, shuffle=False) as loader,
        pytest.raises(ShardError, match=r"^\S*shard-000001\.tar: a sample is damaged") as caught,
    ):
        list(loader)
    error = caught.value
    assert (error.shard, error.offset, error.key, error.step) == ("shard-000001.tar", offset, "000000013", 1)
    assert str(error).count("shard-000001.tar") == str(error).count("byte") == 1
    with started(ShardDataset, kwargs, on_error="skip") as loader:
        found = [plain(batch) for batch in loader]
        assert loader.statistics()["samples_skipped"] == 1
    assert sorted(numbers(found, WAYS[0])) == [at for at in range(20) if at != 13]


def test_a_dataset_that_is_given_travels_small(folder: Path) -> None:
    dataset = ShardDataset(folder, ("x.npy", "cls"))
    with SwiftLoader.from_dataset(dataset, 8, 1, 2, seed=1) as loader:
        loader.start(0)
        found = [plain(batch) for batch in loader]
    assert found == stream(ShardDataset, settings(folder, WAYS[0]))


def test_picked_samples_are_a_dataset_too(folder: Path) -> None:
    chosen = ShardDataset(folder, ("x.npy", "cls")).where(cls=[1, 2])
    with SwiftLoader.from_dataset(chosen, 8, 1, 2, seed=1) as loader:
        loader.start(0)
        found = [plain(batch) for batch in loader]
    assert sorted(numbers(found, WAYS[0])) == [at for at in range(COUNT) if at % 10 in (1, 2)]


def test_tokens_go_straight_to_their_rows(tmp_path: Path) -> None:
    tokens = np.arange(5000, dtype=np.uint16)
    tokens.tofile(tmp_path / "a.bin")
    kwargs = {"files": str(tmp_path / "a.bin"), "length": 16, "dtype": "uint16"}
    streams = [stream(TokenDataset, kwargs, worker_per_consumer=count) for count in (0, 2)]
    assert streams[0] == streams[1]
    assert streams[0][0][0][0] == "torch.int64"
    windows = sorted(tuple(row) for x, _ in streams[0] for row in x[1])
    assert windows == [tuple(range(at, at + 16)) for at in range(0, 4984, 16)]
    assert all(np.array_equal(np.add(x[1], 1), y[1]) for x, y in streams[0])


def test_a_folder_of_images_is_a_dataset(tmp_path: Path) -> None:
    for at in range(12):
        path = tmp_path / "ab"[at % 2] / f"{at}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(sample(at)["png"])
    found = stream(ImageFolder, {"root": str(tmp_path), "decode": "rgb8"}, batch_size=4)
    red = sorted(
        (image[0][0][0], target)
        for (_, images), (_, targets) in found
        for image, target in zip(images, targets, strict=True)
    )
    assert red == [(at, at % 2) for at in range(12)]


def test_torch_reads_it_too(folder: Path) -> None:
    from torch.utils.data import DataLoader

    dataset = ShardDataset(folder, ("x.npy", "cls"))
    dataset[0]  # as one looks at it before its workers are forked
    found = [plain(batch) for batch in DataLoader(dataset, 8, num_workers=2)]
    assert numbers(found, WAYS[0]) == list(range(COUNT))


def test_arrays_of_several_sizes_are_told_as_of_any_dataset(tmp_path: Path) -> None:
    fields = (*FIELDS[:4], type(FIELDS[4])("x.npy"))
    write_set(tmp_path, 8, make=lambda at: {**sample(at), "x.npy": npy(np.zeros(at + 1))}, fields=fields)
    with pytest.raises(LayoutError, match="ragged"), started(ShardDataset, settings(tmp_path, ("x.npy",))):
        pass
